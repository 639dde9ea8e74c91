//! `finetune --dry-run`: predicts examples, sizes, steps, memory and disk of a run.
//!
//! The plan reads the configuration, the examples, the tokenizer and the model folder, so that it reports the
//! same errors as a run. It does not train.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::finetune::sweep::complete;
use crate::commands::finetune::{SeedRun, seeds};
use crate::commands::{forecast, terminal};
use crate::config::{FinetuneConfig, Setting, Sweep};
use crate::interop::{PretrainedFolder, read_folder};
use crate::machine::Machine;
use crate::quantity::format_count;
use crate::tasks::finetuning::Teacher;
use crate::tasks::finetuning_task::{Examples, FinetuningTask, best};
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::run::Kind;
use crate::train::resume::Start;
use crate::train::run::best_score;
use crate::train::{auto_batch_size, used};
use crate::trials::{cell, lanes};
use crate::{machine, trials};

/// The most output folders that a plan lists.
const MOST_FOLDERS: usize = 20;

/// The runs of a plan.
#[derive(Clone, Copy)]
enum Runs<'a> {
    /// One run for each seed of a configuration.
    Seeds(&'a [SeedRun]),
    /// The cells of a sweep.
    Cells(&'a Sweep),
}

/// A run of a plan.
struct Planned {
    folder: PathBuf,
    seed: u64,
    /// Note about an earlier run in the folder, if there is one.
    outlook: Option<String>,
}

impl Runs<'_> {
    fn listed(self, config: &FinetuneConfig) -> Result<Vec<Planned>> {
        match self {
            Self::Seeds(seeds) => {
                let runs = seeds.iter().map(|run| {
                    let outlook = used::outlook(&Start::Auto, run.folder(), &run.config)?;
                    Ok(Planned { folder: run.folder().to_path_buf(), seed: run.seed, outlook })
                });
                runs.collect()
            }
            Self::Cells(sweep) => {
                let cells = trials::sweep::all_cells(sweep, &config.run.output_dir).into_iter();
                let runs = cells.map(|cell| {
                    let outlook = cell.outlook()?;
                    Ok(Planned { folder: cell.folder, seed: cell.seed, outlook })
                });
                runs.collect()
            }
        }
    }

    /// Returns how many runs are trained at the same time.
    fn at_once<T: FinetuningTask>(
        self,
        examples: &Examples<T>,
        config: &FinetuneConfig,
        folder: &PretrainedFolder,
        machine: &Machine,
    ) -> Result<usize> {
        match self {
            Self::Seeds(seeds) => lanes::lanes(seeds, examples, config, folder, machine),
            Self::Cells(sweep) => {
                let group = trials::sweep::groups(sweep).next().unwrap_or_default();
                let first = Sweep { settings: group.to_vec(), ..sweep.clone() };
                let jobs = trials::sweep::all_cells(&first, &config.run.output_dir);
                trials::sweep::at_once(group, &jobs, examples, &trials::sweep::models(&first)?, machine)
            }
        }
    }
}

/// Prints the lines of `finetune --dry-run`.
pub(super) fn single(config: &FinetuneConfig, machine: &Machine) -> Result<()> {
    let runs = seeds(config);
    print_plan(vec!["dry run: nothing is written".to_string()], config, machine, Runs::Seeds(&runs))
}

/// Prints how many runs a sweep has, the lines of its first setting, and the folders of all runs.
pub(super) fn sweep(mut sweep: Sweep) -> Result<()> {
    for note in complete(&mut sweep)? {
        terminal::note(&note);
    }
    let Some(first) = sweep.settings.first() else { return Ok(()) };
    let mut config = first.config.clone();
    let output = config.run.output_dir.clone();
    trials::sweep::refuse_used(&sweep, &output)?;
    let folders = trials::sweep::all_cells(&sweep, &output).into_iter().map(|cell| cell.folder);
    cell::keep_type(&mut config, folders)?;
    let machine = machine::set_up(&config.run, &config.precision)?;
    config.precision.compute = machine.policy.compute_type().into();
    for setting in &mut sweep.settings {
        setting.config.precision.compute = machine.policy.compute_type().into();
    }
    let settings = sweep.settings.len();
    let seeds = sweep.seeds.len();
    let first = &sweep.settings[0].values;
    let values: Vec<String> =
        sweep.keys.iter().zip(first).map(|(key, value)| format!("{key}={value}")).collect();
    let runs = format!("{settings} settings x {seeds} seeds = {} runs", settings * seeds);
    let lines = vec![format!("dry run: nothing is written; {runs}; the first, {}:", values.join(", "))];
    print_plan(lines, &config, &machine, Runs::Cells(&sweep))
}

/// The work of each setting of a sweep, on its own examples and with its own steps.
fn work_of<T: FinetuningTask>(sweep: &Sweep, machine: &Machine) -> Result<Vec<forecast::Runs>> {
    let models = trials::sweep::models(sweep)?;
    let mut work = Vec::new();
    for group in trials::sweep::groups(sweep) {
        let Some(first) = group.first() else { continue };
        let examples = Examples::<T>::read(&first.config)?;
        // Settings with the same data and the same model have the same tokens.
        let mut read = BTreeMap::new();
        for Setting { config, .. } in group {
            let folder = &models[&config.model];
            let shapes = examples.kind(config, folder).shapes()?;
            let fit = auto_batch_size::fit(&config.training, &shapes, machine)?;
            let training = fit.map_or_else(|| config.training.clone(), |fit| fit.training);
            if !read.contains_key(&config.model) {
                read.insert(config.model.clone(), examples.planned(config, folder)?);
            }
            work.push(forecast::Runs::new(training, shapes, &read[&config.model], sweep.seeds.len()));
        }
    }
    Ok(work)
}

/// Prints `lines`, then the lines of the plan.
fn print_plan(
    mut lines: Vec<String>,
    config: &FinetuneConfig,
    machine: &Machine,
    runs: Runs<'_>,
) -> Result<()> {
    lines.extend(list::finetuned(config.goal(), PlanLines { config, machine, runs })?);
    // Labels come from outside and are escaped.
    lines.iter().map(|line| terminal::printable(line)).try_for_each(|line| terminal::stdout_line(&line))
}

/// Computes the lines of a plan.
struct PlanLines<'a> {
    config: &'a FinetuneConfig,
    machine: &'a Machine,
    runs: Runs<'a>,
}

impl FinetunedVisitor for PlanLines<'_> {
    type Output = Result<Vec<String>>;

    fn visit<T: FinetuningTask>(self) -> Result<Vec<String>> {
        let Self { config, machine, runs } = self;
        let mut lines = Vec::new();
        let mut row = |name: &str, text: String| lines.push(format!("  {name:20} {text}"));
        row("compute", machine.summary());
        machine.policy.notes.iter().for_each(|note| row("", note.clone()));
        if let Some(reason) = &machine.without_gpu {
            row("", format!("no GPU: {reason}"));
        }
        let folder = read_folder(&config.model)?;
        folder.check_encoder(T::HEAD)?;
        folder.notes.iter().for_each(|note| row("", format!("{}: {note}", config.model.display())));
        let examples = Examples::<T>::read(config)?;
        examples.require_some()?;
        // A run reports these problems before it trains.
        examples.target.objective(&config.training, &examples.train.gold)?;
        best_score(&config.training, best::<T>(), &examples.target.score_names())?;
        let teacher = examples.teacher(config)?;
        let shapes = examples.kind(config, &folder).shapes()?;
        let fit = auto_batch_size::fit(&config.training, &shapes, machine)?;
        let shape = &shapes.model.encoder;
        let parameters = shapes.outline.num_parameters();
        let sizes = format!("{} x {}", shape.num_hidden_layers, shape.hidden_size);
        let model = format!("{} {sizes}: {} parameters", shapes.model.family.name, format_count(parameters));
        row("model", format!("{model}, `{}`", folder.path.display()));
        if let Some(Teacher { folder, .. }) = teacher {
            let family = folder.config.family.name;
            let shape = &folder.config.encoder;
            let sizes = format!("{family} {} x {}", shape.num_hidden_layers, shape.hidden_size);
            let path = folder.path.display();
            row(
                "teacher",
                format!("{sizes}, `{path}`: predicts the training examples before the first step"),
            );
        }
        examples.summary().lines().for_each(|line| row("examples", line.to_string()));
        if let Some(text) = examples.warning() {
            row("warning", text.to_string());
        }
        let read = examples.planned(config, &folder)?;
        read.lines.iter().for_each(|(name, text)| row(name, text.clone()));
        if let Some(fit) = &fit {
            row("batch", fit.to_string());
        }
        let training = fit.as_ref().map_or(&config.training, |fit| &fit.training);
        let update = training.rows_per_update();
        row("update", format!("{update} rows of at most {} tokens", config.data.sequence_length()));
        let planned = runs.listed(config)?;
        let work = match runs {
            Runs::Seeds(_) => vec![forecast::Runs::new(training.clone(), shapes, &read, planned.len())],
            Runs::Cells(sweep) => work_of::<T>(sweep, machine)?,
        };
        let Some(forecast::Runs { shapes, steps, .. }) = work.first() else { return Ok(lines) };
        let epochs = *steps as f64 / read.rows.div_ceil(update.max(1)).max(1) as f64;
        row("steps", format!("{}, {epochs:.1} epochs", format_count(*steps)));
        if work.len() > 1 {
            let all: u64 = work.iter().map(|runs| runs.steps * runs.count as u64).sum();
            row("", format!("{} in all {} runs", format_count(all), planned.len()));
        }
        let length = config.data.sequence_length();
        for (name, text) in forecast::time_and_cost(&work, config, machine)? {
            row(name, text);
        }
        row("memory", forecast::memory(training, length, machine, shapes));
        let at_once = runs.at_once(&examples, config, &folder, machine)?;
        if at_once > 1 {
            row("", forecast::memory_of_runs(at_once, training, length, machine, shapes));
        }
        let checkpoint = shapes.checkpoint_bytes(training);
        row("disk", forecast::disk(checkpoint, training, &config.run));
        if planned.len() > 1 {
            let all =
                forecast::disk_of_runs(planned.len(), checkpoint, 4 * parameters, training, &config.run);
            let kept = match runs {
                Runs::Seeds(_) => "",
                Runs::Cells(_) => "; at the end only the best run keeps its weights",
            };
            row("", format!("{all}{kept}"));
        }
        if let Some(limit) = &training.max_train_time {
            row("time limit", format!("{limit}; if time runs out first, the learning rate has not decayed"));
        }
        if let Some(text) = forecast::limits(&config.run)? {
            row("limit", format!("{text}; there are fewer steps if it does not suffice for all"));
        }
        for Planned { folder, seed, outlook } in planned.iter().take(MOST_FOLDERS) {
            let outlook = outlook.as_ref().map(|text| format!(", {text}")).unwrap_or_default();
            row("output", format!("{}, seed {seed}{outlook}", folder.display()));
        }
        if planned.len() > MOST_FOLDERS {
            row("", format!("and {} more", planned.len() - MOST_FOLDERS));
        }
        Ok(lines)
    }
}
