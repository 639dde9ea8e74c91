//! `mlmtrain pretrain`: trains a model on raw text, by masked language modelling or replaced-token detection.

mod plan;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::checkpoint::CheckpointStore;
use crate::commands::config_args::{PretrainArgs, Resume};
use crate::commands::next_step::Ended;
use crate::commands::notify::notify;
use crate::commands::plan::{Actual, compared};
use crate::commands::staging::Corpus;
use crate::commands::{next_step, prepare, staging, terminal, together, upload};
use crate::config::{Loaded, LossBand, PretrainConfig, defaults, to_yaml};
use crate::distributed::World;
use crate::error::Problem;
use crate::machine::Machine;
use crate::prepare::Prepared;
use crate::quantity::{format_amount, format_count, format_duration};
use crate::scores::measured;
use crate::tasks::fill_mask::Candidate;
use crate::tasks::list;
use crate::tasks::list::PretrainedVisitor;
use crate::tasks::pretraining::origin::Origin;
use crate::tasks::pretraining::{Pretrained, Pretraining, origin, planned_model, sample};
use crate::tasks::replaced_token_detection::scores::finds_nothing;
use crate::tasks::run::Kind;
use crate::telemetry::Progress;
use crate::train::checkpoint_files::Resumed;
use crate::train::meter::usd_in_all;
use crate::train::probe::Probe;
use crate::train::request::Request;
use crate::train::resume::{Start, keep_compute, keep_derived, keep_shuffle};
use crate::train::run::Outcome;
use crate::train::signals::{EndAtOnce, Signals, stopped_by};
use crate::train::{End, decay, used};
use crate::trials::{Equipment, Probes, tune};
use crate::{config, machine, train};

/// The report has the number of predicted tokens if the evaluation predicted fewer than these.
const FEW_PREDICTED: f64 = 1000.0;

/// Runs the subcommand.
pub fn run(args: &PretrainArgs) -> Result<()> {
    let corpus = if args.dry_run { Corpus::Skipped } else { Corpus::Included };
    let Loaded { config, origins } = args.load()?;
    let derived = origins.derived();
    let mut config = staging::pretraining(config, corpus)?;
    let start = match &args.resume {
        Resume::Auto => Start::Auto,
        Resume::Never => Start::Fresh,
        Resume::From(path) => Start::At(staging::path(path)?),
    };
    if args.resume == Resume::Never {
        refuse_used(&config.run.output_dir)?;
    }
    tune::refuse_run(&config.run.output_dir)?;
    let progress = Progress::detect(terminal::is_quiet());
    progress.run_folder(&config.run.output_dir);
    let mut remote = None;
    if config.run.upload_to.is_some() && !args.dry_run {
        let mut resolved = config.clone();
        decay::resolve(&mut resolved, &start, derived)?;
        let world = World::join(&config.distributed)?;
        remote = world
            .in_first(|| upload::restore_newer(&resolved, derived, &config.run, &start, &progress))?
            .flatten();
    }
    let parent = decay::resolve(&mut config, &start, derived)?;
    // For a decay, `config.model` is now that of its checkpoint, as it was saved, and may name URLs.
    config.model = staging::staged(config.model, &config.cache)?;
    keep_compute(&mut config.precision, &start, [config.run.output_dir.clone()])?;
    keep_shuffle(&mut config.data, &start, config.run.output_dir.clone())?;
    let has_begun = keep_derived(&mut config.training, derived, &start, config.run.output_dir.clone())?;
    let machine = machine::set_up_as_one_of_many(&config.run, &config.precision, &config.distributed)?;
    config.precision.compute = machine.policy.compute_type().into();
    let (resolved, origin) = origin::resolve(&config)?;
    // Before the data are prepared, which may write to the folder.
    machine.world.in_first(|| used::refuse_other_run(&start, &config.run.output_dir, &config))?;
    if let Some(note) = unused_table(args, &resolved) {
        progress.note(&note);
    }
    if args.dry_run {
        if let Some(origin) = &origin {
            origin.check(&planned_model(&resolved)?, resolved.task())?;
        }
        let outlook = used::outlook(&start, &config.run.output_dir, &config)?;
        return plan::pretrain(&resolved, &machine, outlook)?
            .into_iter()
            .try_for_each(|line| terminal::stdout_line(&line));
    }
    let progress = together::begin(machine.world, || to_yaml(&config), &config.run, progress)?;
    machine.announce(&progress);
    progress.detail(&format!("configuration `{}`", args.config.config.display()));
    // A resumed run and a decay keep the values of the earlier run.
    let is_new = !has_begun && config.decay_from.is_none();
    if let Some(line) = defaults::summary(&config.training, derived).filter(|_| is_new) {
        progress.note(&line);
    }
    if let Some(line) = decay::told(&config) {
        progress.note(&line);
    }
    let mut next = String::new();
    // Results are printed even if the upload fails.
    let lines = upload::while_uploading(remote, &config.run.output_dir, &progress, || {
        let from = Beginning { start: &start, parent: parent.as_ref() };
        let ended = train(&config, &resolved, origin, from, &machine, &progress)?;
        if machine.world.is_first() {
            ended.lines.iter().try_for_each(|line| terminal::stdout_line(line))?;
            ended.warnings.iter().for_each(|text| progress.warn(text));
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

/// Returns a note if `--model` names a folder of another family than the table of the configuration, which it
/// replaces.
fn unused_table(args: &PretrainArgs, resolved: &PretrainConfig) -> Option<String> {
    let folder = args.model.as_ref()?;
    // The mask of its sample text is that of the folder, not of the table.
    let without_sample = config::overrides(&[], &["run.sample_text=null".to_string()]).ok()?;
    let file = args.config.load_with(without_sample).ok()?.config;
    let [table, trained] =
        [file.model.tables.first()?, resolved.model.tables.first()?].map(|model| model.family);
    (table.name != trained.name).then(|| {
        format!(
            "note: the table `model.{}` of the configuration is not used: `{}` is a model of {}, which is trained on",
            table.name,
            folder.display(),
            trained.title
        )
    })
}

/// Refuses to start a new run in a folder that has checkpoints of another run, which would be lost.
fn refuse_used(folder: &Path) -> Result<()> {
    let store = CheckpointStore::new(folder);
    let Some(step) = store.steps()?.last().copied() else { return Ok(()) };
    let message = format!("is at step {step} of a run, and `--resume never` begins a new one");
    let hint = "leave out `--resume never` to continue that run, or name another folder: \
                `--set run.output_dir=FOLDER`";
    Err(Problem::usage(message).at(store.path_of(step).display()).hint(hint).into())
}

/// The state that training begins with.
#[derive(Clone, Copy)]
struct Beginning<'a> {
    start: &'a Start,
    /// The checkpoint of another run, for a decay.
    parent: Option<&'a Resumed>,
}

/// Prepares the data, trains, and returns the report. `resolved` is `config` with the model of the folder
/// that it may name.
fn train(
    config: &PretrainConfig,
    resolved: &PretrainConfig,
    origin: Option<Origin>,
    from: Beginning<'_>,
    machine: &Machine,
    progress: &Progress,
) -> Result<Ended> {
    let end_at_once = EndAtOnce::listen(progress, prepare::KEPT)?;
    let prepared = prepare::ensure_prepared(machine.world, resolved, progress)?;
    for line in prepare::summary(resolved, &prepared) {
        progress.note(&line);
    }
    if machine.world.is_first() {
        prepare::warn_of_lost_text(resolved, progress)?;
    }
    let signals = Signals::listen(progress)?;
    drop(end_at_once);
    let with = Equipment { machine, progress, signals: &signals, world: World::ALONE };
    let tasks = config.evaluation.probes.as_ref().map(|path| staging::tasks(path, &[])).transpose()?;
    let probes = Probes::new(resolved, tasks.unwrap_or_default(), &config.precision, with)?;
    let request = Request {
        probe: probes.as_ref().map(|probes| probes as &dyn Probe),
        parent: from.parent,
        ..Request::from_pretrain_config(config, from.start)
    };
    let training =
        Training { request: &request, resolved, origin, prepared, machine, progress, signals: &signals };
    list::pretrained(resolved.task(), training)
}

/// A run of a task, whose type the visitor is called with.
struct Training<'a> {
    request: &'a Request<'a, PretrainConfig>,
    /// The configuration with the model of the folder that it may name.
    resolved: &'a PretrainConfig,
    origin: Option<Origin>,
    prepared: Prepared,
    machine: &'a Machine,
    progress: &'a Progress,
    signals: &'a Signals,
}

impl PretrainedVisitor for Training<'_> {
    type Output = Result<Ended>;

    fn visit<T: Pretrained>(self) -> Result<Ended> {
        let Self { request, resolved: config, origin, prepared, machine, progress, signals } = self;
        let kind = Pretraining::<T>::new(config, prepared, origin)?;
        let loss_band = loss_band(config, &kind, progress)?;
        let request = &Request { loss_band, ..*request };
        let outcome = machine::in_pool(|| train::run::run(kind, request, machine, progress, signals))?;
        if let Some(End::Signal(signal)) = outcome.end {
            return Err(stopped_by(signal, &format!("step {} is saved", outcome.step)).into());
        }
        let scores = outcome.results.iter();
        let scores = scores.filter_map(|(name, value)| Some((name.strip_prefix("eval_")?, *value)));
        let mut warnings: Vec<String> =
            scores.filter_map(|(name, value)| finds_nothing(name, value)).collect();
        warnings.extend(worse_than_frequencies(&outcome.results));
        let tokenizer = &outcome.data.tokenizer;
        let filled = sample(config, &outcome.task, tokenizer)?;
        let mask = tokenizer.special().mask().ok().and_then(|mask| tokenizer.token(mask)).unwrap_or_default();
        let next = next_step::after_pretraining(&outcome.model, &mask, config.run.sample_text.as_deref());
        Ok(Ended { lines: report(config, &outcome, &filled, machine), warnings, next })
    }
}

/// Returns the band that the loss is expected in, if the configuration has one for a run with these settings
/// and data.
fn loss_band<'a>(
    config: &'a PretrainConfig,
    kind: &impl Kind,
    progress: &Progress,
) -> Result<Option<&'a LossBand>> {
    let Some(band) = &config.evaluation.loss_band else { return Ok(None) };
    let inputs = kind.inputs()?;
    let likeness = config.likeness(&inputs.values().map(String::as_str).collect::<Vec<&str>>());
    if likeness.as_ref() == Some(&band.of) {
        return Ok(Some(band));
    }
    let text = "note: `evaluation.loss_band` is ignored: it belongs to other settings or data than these";
    progress.note(&format!("{text} (`{}`)", likeness.unwrap_or_default()));
    Ok(None)
}

/// The warning about a model of masked words whose loss is above that of guessing each word by its frequency.
fn worse_than_frequencies(results: &BTreeMap<String, f64>) -> Option<String> {
    let baseline = value(results, "eval_unigram_loss")?;
    // With several tasks, `eval_loss` is the sum of their losses.
    let names = ["eval_generator_loss", "eval_mlm_loss", "eval_loss"];
    let loss = names.into_iter().find_map(|name| value(results, name))?;
    (loss > baseline).then(|| {
        format!(
            "the model is worse than guessing by frequency alone: its loss on masked words is {loss:.4}, the unigram \
             baseline {baseline:.4}; train longer (`training.max_steps`), with another `training.learning_rate` or \
             larger updates (`training.gradient_accumulation_steps`)"
        )
    })
}

/// Returns the lines that are printed at the end of a run.
fn report<T, D>(
    config: &PretrainConfig,
    outcome: &Outcome<T, D>,
    filled: &[Vec<Candidate>],
    machine: &Machine,
) -> Vec<String> {
    let mut lines = vec![match outcome.end {
        None => format!("this run is complete ({} steps); nothing was done", outcome.step),
        Some(End::Time) => format!(
            "`{}` ended the run after {} steps, before the learning rate has decayed",
            config.run.limits(&config.training).join("` or `"),
            outcome.step
        ),
        Some(End::Patience) => format!("stopped after {} steps: evaluation no longer improves", outcome.step),
        Some(End::Steps | End::Signal(_) | End::Pause) => format!("trained {} steps", outcome.step),
    }];
    let results = &outcome.results;
    let mut row =
        |name: &str, text: Option<String>| lines.extend(text.map(|text| format!("  {name:20} {text}")));
    let has_generator = results.contains_key("eval_generator_loss");
    let baseline = number(results, "eval_unigram_loss");
    let baseline = baseline.map(|v| format!("{v} (always guessing by frequency alone)"));
    let (of_generator, of_model) = if has_generator { (baseline, None) } else { (None, baseline) };
    row(
        "validation loss",
        number(results, "eval_loss").map(|loss| {
            let [generator, discriminator] = [config.rtd.generator_weight, config.rtd.discriminator_weight];
            let sum = format!(" ({generator} x generator loss + {discriminator} x discriminator loss)");
            if has_generator { loss + &sum } else { loss }
        }),
    );
    let predicted = value(results, "eval_predicted_tokens").filter(|&tokens| tokens < FEW_PREDICTED);
    row("tokens predicted", predicted.map(|tokens| format!("{tokens}: too few to tell much")));
    for (task, title) in [("nsp", "next segment"), ("sop", "segment order")] {
        row(&format!("{title}: right"), percent(results, &format!("eval_{task}_accuracy")));
        let baseline = percent(results, &format!("eval_{task}_baseline_accuracy"));
        row("baseline", baseline.map(|v| format!("{v} (always guessing the more frequent class)")));
    }
    row("generator loss", number(results, "eval_generator_loss"));
    row("unigram baseline", of_generator);
    row("generator accuracy", percent(results, "eval_generator_accuracy"));
    row("discriminator loss", number(results, "eval_discriminator_loss"));
    row(
        "baseline",
        number(results, "eval_discriminator_baseline_loss")
            .map(|v| format!("{v} (always guessing the rate of replacement)")),
    );
    row("replaced: precision", percent(results, "eval_replaced_precision"));
    row("replaced: recall", percent(results, "eval_replaced_recall"));
    row("generator guessed the original", percent(results, "eval_sampled_equal_share"));
    row("perplexity", value(results, "eval_perplexity").map(|v| measured(v, |v| format!("{v:.1}"))));
    row("masked accuracy", percent(results, "eval_accuracy"));
    row("unigram baseline", of_model);
    let tokens_per_second = value(results, "train_tokens_per_second");
    row("tokens/s", tokens_per_second.map(|v| format_count(v.round() as u64)));
    let seconds = value(results, "train_runtime");
    row("training time", seconds.map(|v| format_duration(std::time::Duration::from_secs_f64(v.max(0.0)))));
    let cost = config.run.usd_per_hour.zip(seconds).map(|(usd, seconds)| usd_in_all(usd, seconds));
    row("cost", cost.map(|usd| format!("${}", format_amount(usd))));
    let tokens = value(results, "train_num_input_tokens_seen");
    if let (Some(tokens), Some(speed), true) = (tokens, tokens_per_second, outcome.end.is_some()) {
        let actual = Actual::new(machine, tokens, speed);
        let compared = compared(&config.run.output_dir, machine, actual);
        ["planned", "actual"].into_iter().zip(compared).for_each(|(name, text)| row(name, Some(text)));
    }
    row("model", Some(outcome.model.display().to_string()));
    if let Some(text) = &config.run.sample_text {
        lines.push(format!("  {text}"));
        for (number, candidates) in filled.iter().enumerate() {
            let best: Vec<String> = candidates
                .iter()
                .map(|c| format!("{}({:.0} %)", quoted(&c.token), 100.0 * c.probability))
                .collect();
            lines.push(format!("    mask {}: {}", number + 1, best.join("  ")));
        }
    }
    lines
}

fn value(results: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    results.get(name).copied()
}

fn number(results: &BTreeMap<String, f64>, name: &str) -> Option<String> {
    value(results, name).map(|v| measured(v, |v| format!("{v:.4}")))
}

fn percent(results: &BTreeMap<String, f64>, name: &str) -> Option<String> {
    value(results, name).map(|v| measured(v, |v| format!("{:.1} %", 100.0 * v)))
}

/// A token in quotes, which make a leading space visible.
fn quoted(token: &str) -> String {
    format!("{token:?} ")
}
