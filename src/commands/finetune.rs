//! `mlmtrain finetune`: trains a pretrained encoder on labelled examples, once for each seed, or runs a
//! sweep.

pub mod args;
mod plan;
mod sweep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::commands::finetune::args::FinetuneArgs;
use crate::commands::next_step::Ended;
use crate::commands::notify::notify;
use crate::commands::{next_step, staging, terminal, together, upload};
use crate::config::{FinetuneConfig, FinetunePlan};
use crate::distributed::World;
use crate::fs::FolderLock;
use crate::interop::{PretrainedFolder, read_folder};
use crate::machine::Machine;
use crate::quantity::format_amount;
use crate::scores::{mean, measured, sample_std};
use crate::tasks::finetuning_task::{Column, Examples, FinetuningTask};
use crate::tasks::labelled::files_of;
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::trained::learnt_nothing;
use crate::telemetry::{Progress, write_results};
use crate::train::request::Request;
use crate::train::resume::{Start, keep_compute};
use crate::train::signals::{Signals, stopped_by};
use crate::train::{End, results, used};
use crate::trials::lanes::Job;
use crate::trials::{Equipment, cell, lanes, tune};
use crate::{config, fs, machine, train};

/// The run of one seed, with its own configuration. A single seed trains in the output folder itself, several
/// each in a folder below it.
struct SeedRun {
    seed: u64,
    config: FinetuneConfig,
}

impl SeedRun {
    fn folder(&self) -> &Path {
        &self.config.run.output_dir
    }
}

impl Job for SeedRun {
    fn name(&self) -> String {
        format!("seed {}", self.seed)
    }

    /// Always false: a run that is complete notices that itself.
    fn is_done(&self) -> bool {
        false
    }
}

/// The outcome of the run of one seed.
struct Outcome {
    seed: u64,
    /// The reason why training ended; `None` if the run was complete already.
    end: Option<End>,
    /// Steps done, and those that were planned.
    steps: [u64; 2],
    results: BTreeMap<String, f64>,
    /// Details of the last evaluation that are not scores.
    details: String,
    model: PathBuf,
    /// The keys that may have made the run shorter than its steps.
    limits: Vec<&'static str>,
}

impl Outcome {
    /// A result by its name; NaN if there is none.
    fn value(&self, name: &str) -> f64 {
        self.results.get(name).copied().unwrap_or(f64::NAN)
    }

    /// A note next to the scores about how the run ended; empty if it was trained to its end.
    fn note(&self) -> String {
        let [step, planned] = self.steps;
        match self.end {
            None => "  (complete already)".into(),
            Some(End::Time | End::Steps) if step < planned => {
                format!("  (`{}` ended it at step {step} of {planned})", self.limits.join("` or `"))
            }
            Some(_) => String::new(),
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &FinetuneArgs) -> Result<()> {
    let mut config = match args.load()? {
        FinetunePlan::Sweep(sweep) if args.dry_run => return plan::sweep(sweep),
        FinetunePlan::Sweep(sweep) => return sweep::run(sweep),
        FinetunePlan::Single(loaded) => staging::finetuning(loaded.config)?,
    };
    cell::require_files([&config])?;
    let note = choose_length(&mut config)?;
    tune::refuse_run(&config.run.output_dir)?;
    let progress = Progress::detect(terminal::is_quiet());
    progress.run_folder(&config.run.output_dir);
    let mut remote = None;
    if config.run.upload_to.is_some() && !args.dry_run {
        remote = World::join(&config.distributed)?
            .in_first(|| upload::restore_newer(&config, &[], &config.run, &Start::Auto, &progress))?
            .flatten();
    }
    let folders = seeds(&config).into_iter().map(|run| run.config.run.output_dir);
    keep_compute(&mut config.precision, &Start::Auto, folders)?;
    let machine = machine::set_up_as_one_of_many(&config.run, &config.precision, &config.distributed)?;
    config.precision.compute = machine.policy.compute_type().into();
    if args.dry_run {
        if let Some(note) = &note {
            terminal::note(note);
        }
        refuse_used(&config, &seeds(&config))?;
        return plan::single(&config, &machine);
    }
    let progress = together::begin(machine.world, || config::to_yaml(&config), &config.run, progress)?;
    machine.announce(&progress);
    if let Some(note) = note {
        progress.note(&note);
    }
    let training = Training { config: &config, machine: &machine, progress: &progress };
    let mut next = String::new();
    // Results are printed even if the upload fails.
    let lines = upload::while_uploading(remote, &config.run.output_dir, &progress, || {
        let ended = list::finetuned(config.goal(), training)?;
        if machine.world.is_first() {
            ended.lines.iter().try_for_each(|line| terminal::stdout_line(line))?;
        }
        next = ended.next;
        Ok(ended.lines)
    });
    if machine.world.is_first() {
        notify(&config.run, &lines);
    }
    lines?;
    if machine.world.is_first() {
        next.lines().for_each(|line| progress.note(line));
    }
    Ok(())
}

/// The runs of a task, whose type the visitor is called with.
struct Training<'a> {
    config: &'a FinetuneConfig,
    machine: &'a Machine,
    progress: &'a Progress,
}

impl FinetunedVisitor for Training<'_> {
    type Output = Result<Ended>;

    fn visit<T: FinetuningTask>(self) -> Result<Ended> {
        let Self { config, machine, progress } = self;
        let seeds = seeds(config);
        machine.world.in_first(|| refuse_used(config, &seeds))?;
        // Each run locks its own folder. The folder above several runs has to be locked, too.
        let _lock = (seeds.len() > 1 && machine.world.is_first())
            .then(|| FolderLock::take(&config.run.output_dir))
            .transpose()?;
        let eval = config.data.eval_fraction.is_none().then_some(&config.data.eval_file);
        for path in [&config.data.train_file].into_iter().chain(eval).chain(&config.data.test_file) {
            let files = files_of(path).unwrap_or_default();
            for file in files {
                progress.detail(&format!("reading `{}`", file.display()));
            }
        }
        let examples = Examples::<T>::read(config)?;
        progress.note(&examples.summary());
        if let Some(text) = examples.warning() {
            progress.warn(text);
        }
        // The folder is opened once for all seeds. Tensors are read later, on demand.
        let folder = read_folder(&config.model)?;
        progress.detail(&format!("starting from `{}`", folder.path.display()));
        let signals = Signals::listen(progress)?;
        let lanes = lanes::lanes(&seeds, &examples, config, &folder, machine)?;
        let mut outcomes: Vec<Option<Outcome>> = seeds.iter().map(|_| None).collect();
        let with = Equipment { machine, progress, signals: &signals, world: World::ALONE };
        lanes::side_by_side(
            &seeds,
            lanes,
            with,
            |at, with| train_seed(&seeds[at], &examples, &folder, with),
            |at, outcome| {
                outcomes[at] = Some(outcome);
                Ok(())
            },
        )?;
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        if outcomes.len() > 1 && machine.world.is_first() {
            let output = &config.run.output_dir;
            fs::write_bytes(&output.join("config.yaml"), config::to_yaml(config).as_bytes())?;
            write_results(output, "eval", &summary(&outcomes, "eval_"))?;
            if config.data.test_file.is_some() {
                write_results(output, "test", &summary(&outcomes, "test_"))?;
            }
        }
        let model = outcomes.first().map(|outcome| outcome.model.as_path());
        let next = model.map(|model| next_step::after_finetuning(model, config)).unwrap_or_default();
        Ok(Ended { lines: report(&outcomes, T::COLUMNS), warnings: Vec::new(), next })
    }
}

/// Trains one seed, and warns if the model gives all examples the same answer.
fn train_seed<T: FinetuningTask>(
    seed_run: &SeedRun,
    examples: &Examples<T>,
    folder: &PretrainedFolder,
    with: Equipment<'_>,
) -> Result<Outcome> {
    let SeedRun { seed, config } = seed_run;
    let request = Request::from_finetune_config(config, *seed, &Start::Auto);
    let drawn = examples.drawn(config, *seed);
    let kind = drawn.as_ref().unwrap_or(examples).kind(config, folder);
    let outcome =
        machine::in_pool(|| train::run::run(kind, &request, with.machine, with.progress, with.signals))?;
    if let Some(End::Signal(signal)) = outcome.end {
        return Err(stopped_by(signal, &format!("step {} is saved", outcome.step)).into());
    }
    let train::run::Outcome { end, step, planned_steps, results, model, data, .. } = outcome;
    if let Some(how) = data.uniform_answers().filter(|_| with.machine.world.is_first()) {
        with.progress.labelled(&format!("seed {seed}")).warn(&learnt_nothing(&how));
    }
    let limits = config.run.limits(&config.training);
    let details = data.details();
    Ok(Outcome { seed: *seed, end, steps: [step, planned_steps], results, details, model, limits })
}

/// Chooses the sequence length for the model of a configuration, if it is not given. Returns a note if the
/// model accepts fewer tokens than usual.
pub(super) fn choose_length(config: &mut FinetuneConfig) -> Result<Option<String>> {
    if config.data.max_seq_length.is_some() {
        return Ok(None);
    }
    let longest = read_folder(&config.model)?.config.max_sequence_length();
    Ok(config.data.choose_sequence_length(longest))
}

/// Refuses an output folder with other runs, as a run and its dry run do before any seed is trained: one that
/// is complete may refuse what an unfinished one accepts. A folder in use is left to its lock.
fn refuse_used(config: &FinetuneConfig, seeds: &[SeedRun]) -> Result<()> {
    let output = &config.run.output_dir;
    if fs::is_locked(output) {
        return Ok(());
    }
    if seeds.len() > 1 {
        used::refuse_for_many(output, &["config.yaml", "eval_results.json", "all_results.json"])?;
        used::refuse_single(output)?;
    } else {
        used::refuse_several(output)?;
    }
    seeds.iter().try_for_each(|run| used::refuse_other_run(&Start::Auto, run.folder(), &run.config))
}

fn seeds(config: &FinetuneConfig) -> Vec<SeedRun> {
    match config.seeds.as_slice() {
        [] => vec![SeedRun { seed: config.run.seed, config: config.clone() }],
        [seed] => vec![SeedRun { seed: *seed, config: config.clone() }],
        many => many.iter().map(|&seed| SeedRun { seed, config: config.with_seed(seed) }).collect(),
    }
}

/// Mean and standard deviation over the seeds of each score whose name begins with `start`.
fn summary(outcomes: &[Outcome], start: &str) -> Vec<(String, f64)> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in outcomes.iter().flat_map(|o| &o.results).filter(|(name, _)| name.starts_with(start))
    {
        values.entry(name).or_default().push(*value);
    }
    values
        .iter()
        .flat_map(|(name, v)| [(format!("{name}_mean"), mean(v)), (format!("{name}_std"), sample_std(v))])
        .collect()
}

/// The table of all seeds with mean and deviation, and the details of the last one.
fn report(outcomes: &[Outcome], columns: &[Column]) -> Vec<String> {
    let header = cells(columns, |column| column.title.to_string());
    let mut lines = vec![format!("{:>8}{header}{:>12}{:>14}  model", "seed", "training s", "evaluation s")];
    for outcome in outcomes {
        let row = cells(columns, |column| digits(outcome.value(column.score), column.factor));
        lines.push(format!(
            "{:>8}{row}{:>12.0}{:>14.1}  {}{}",
            outcome.seed,
            outcome.value("train_runtime"),
            outcome.value("eval_runtime"),
            outcome.model.display(),
            outcome.note()
        ));
    }
    lines.extend(over_seeds(outcomes, columns, str::to_string));
    lines.extend(of_test(outcomes, columns));
    if let Some(last) = outcomes.last() {
        // Labels come from outside and are escaped.
        let details = format!("seed {}, {}", last.seed, last.details);
        lines.extend(details.lines().map(terminal::printable));
    }
    let costs = outcomes.iter().filter_map(|outcome| outcome.results.get(results::COST));
    if let Some(usd) = costs.copied().reduce(|sum, usd| sum + usd) {
        lines.push(format!("cost: ${}", format_amount(usd)));
    }
    lines
}

/// The lines with mean and deviation over the seeds; none for one seed. `name` is called with the name of a
/// column's score and returns that of the score to show.
fn over_seeds(outcomes: &[Outcome], columns: &[Column], name: fn(&str) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    if outcomes.len() > 1 {
        for (title, statistic) in [("mean", mean as fn(&[f64]) -> f64), ("std", sample_std)] {
            let row = cells(columns, |column| {
                let values = outcomes.iter().filter_map(|outcome| outcome.results.get(&name(column.score)));
                digits(statistic(&values.copied().collect::<Vec<f64>>()), column.factor)
            });
            lines.push(format!("{title:>8}{row}"));
        }
    }
    lines
}

/// The table of the scores on test examples; nothing without them.
fn of_test(outcomes: &[Outcome], columns: &[Column]) -> Vec<String> {
    if !outcomes.iter().any(|outcome| outcome.results.contains_key("test_loss")) {
        return Vec::new();
    }
    let header = cells(columns, |column| column.title.to_string());
    let mut lines = vec![format!("{:>8}{header}", "test")];
    for outcome in outcomes {
        let row = cells(columns, |column| digits(outcome.value(&test_name(column.score)), column.factor));
        lines.push(format!("{:>8}{row}", outcome.seed));
    }
    lines.extend(over_seeds(outcomes, columns, test_name));
    lines
}

/// The name on test examples of a score with `eval_`.
fn test_name(score: &str) -> String {
    score.replacen("eval_", "test_", 1)
}

/// One line of cells, each 14 columns wide; a longer one moves the cells after it.
fn cells(columns: &[Column], text: impl Fn(&Column) -> String) -> String {
    let cells: Vec<String> = columns.iter().map(|column| format!(" {:>13}", text(column))).collect();
    cells.concat()
}

/// Two decimals for a percentage (a factor above 1), else four.
fn digits(value: f64, factor: f64) -> String {
    measured(
        value,
        |value| {
            if factor > 1.0 { format!("{:.2}", value * factor) } else { format!("{value:.4}") }
        },
    )
}
