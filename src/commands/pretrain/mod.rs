//! `mlmtrain pretrain`: trains a model on raw text, with masked language modelling or replaced-token
//! detection.

mod plan;

use std::path::Path;

use anyhow::Result;

use crate::checkpoint::CheckpointStore;
use crate::commands::config_args::PretrainArgs;
use crate::commands::config_args::Resume;
use crate::commands::next_step;
use crate::commands::next_step::Ended;
use crate::commands::notify::notify;
use crate::commands::plan::Taken;
use crate::commands::plan::compared;
use crate::commands::prepare;
use crate::commands::staging;
use crate::commands::staging::Corpus;
use crate::commands::terminal;
use crate::commands::together;
use crate::commands::upload;
use crate::config::Loaded;
use crate::config::LossBand;
use crate::config::PretrainConfig;
use crate::config::defaults;
use crate::config::to_yaml;
use crate::distributed::World;
use crate::error::Problem;
use crate::machine;
use crate::machine::Machine;
use crate::prepare::Prepared;
use crate::quantity::format_amount;
use crate::quantity::format_count;
use crate::quantity::format_duration;
use crate::scores::measured;
use crate::tasks::fill_mask::Candidate;
use crate::tasks::list;
use crate::tasks::list::PretrainedVisitor;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::pretraining::Pretraining;
use crate::tasks::pretraining::origin;
use crate::tasks::pretraining::origin::Origin;
use crate::tasks::pretraining::planned_model;
use crate::tasks::pretraining::sample;
use crate::tasks::replaced_token_detection::scores::finds_nothing;
use crate::tasks::run::Kind;
use crate::telemetry::Progress;
use crate::train;
use crate::train::End;
use crate::train::decay;
use crate::train::probe::Probe;
use crate::train::resume::Start;
use crate::train::resume::keep_compute;
use crate::train::resume::keep_derived;
use crate::train::resume::keep_shuffle;
use crate::train::run::Outcome;
use crate::train::run::Request;
use crate::train::saved::Resumed;
use crate::train::signals::Signals;
use crate::train::signals::stopped_by;
use crate::trials::Equipment;
use crate::trials::Probes;

/// An evaluation that predicts fewer tokens says how many they were.
const FEW_PREDICTED: f64 = 1000.0;

/// Runs the subcommand.
pub fn run(args: &PretrainArgs) -> Result<()> {
    let corpus = if args.dry_run { Corpus::Left } else { Corpus::Whole };
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
    let progress = Progress::detect(terminal::is_quiet());
    progress.run_folder(&config.run.output_dir);
    let mut remote = None;
    if config.run.upload_to.is_some() && !args.dry_run {
        let mut resolved = config.clone();
        decay::resolve(&mut resolved, &start, derived)?;
        let world = World::join(&config.distributed)?;
        remote = world
            .in_first(|| upload::take_back(&resolved, derived, &config.run, &start, &progress))?
            .flatten();
    }
    let parent = decay::resolve(&mut config, &start, derived)?;
    // A decay takes the model of its checkpoint as it was saved.
    config.model = staging::staged(config.model, &config.cache)?;
    keep_compute(&mut config.precision, &start, [config.run.output_dir.clone()])?;
    keep_shuffle(&mut config.data, &start, config.run.output_dir.clone())?;
    let has_begun = keep_derived(&mut config.training, derived, &start, config.run.output_dir.clone())?;
    let machine = machine::set_up_as_one_of_many(&config.run, &config.precision, &config.distributed)?;
    config.precision.compute = machine.policy.compute_type().into();
    let (resolved, origin) = origin::resolve(&config)?;
    if args.dry_run {
        if let Some(origin) = &origin {
            origin.check(&planned_model(&resolved)?, resolved.task())?;
        }
        return plan::pretrain(&resolved, &machine)?
            .into_iter()
            .try_for_each(|line| terminal::stdout_line(&line));
    }
    let progress = together::begin(machine.world, || to_yaml(&config), &config.run, progress)?;
    machine.announce(&progress);
    progress.detail(&format!("configuration `{}`", args.config.config.display()));
    // A resumed run and a decay have the values of the run before.
    let is_new = !has_begun && config.decay_from.is_none();
    if let Some(line) = defaults::summary(&config.training, derived).filter(|_| is_new) {
        progress.note(&line);
    }
    if let Some(line) = decay::told(&config) {
        progress.note(&line);
    }
    let mut next = String::new();
    // Results are told also where they cannot be uploaded.
    let lines = upload::along(remote, &config.run.output_dir, &progress, || {
        let ended = train(&config, &resolved, origin, (&start, parent.as_ref()), &machine, &progress)?;
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

/// Refuses to begin anew in a folder that has checkpoints, whose run would be lost.
fn refuse_used(folder: &Path) -> Result<()> {
    let store = CheckpointStore::new(folder);
    let Some(step) = store.steps()?.last().copied() else { return Ok(()) };
    let message = format!("is at step {step} of a run, and `--resume never` begins a new one");
    let hint = "leave out `--resume never` to continue that run, or name another folder: \
                `--set run.output_dir=FOLDER`";
    Err(Problem::usage(message).at(store.path_of(step).display()).hint(hint).into())
}

/// Prepares and trains; gives the report. `resolved` is `config` with the model of the folder that it may
/// name.
fn train(
    config: &PretrainConfig,
    resolved: &PretrainConfig,
    origin: Option<Origin>,
    (start, parent): (&Start, Option<&Resumed>),
    machine: &Machine,
    progress: &Progress,
) -> Result<Ended> {
    let prepared = prepare::ensure_prepared(machine.world, resolved, progress)?;
    for line in prepare::summary(resolved, &prepared) {
        progress.note(&line);
    }
    if machine.world.is_first() {
        prepare::warn_of_unknown_text(resolved, progress)?;
    }
    let signals = Signals::listen()?;
    let with = Equipment { machine, progress, signals: &signals, world: World::ALONE };
    let tasks = config.evaluation.probes.as_ref().map(|path| staging::tasks(path, &[])).transpose()?;
    let probes = Probes::new(resolved, tasks.unwrap_or_default(), &config.precision, with)?;
    let request = Request {
        config,
        run: &config.run,
        training: &config.training,
        precision: &config.precision,
        max_seq_length: config.data.max_seq_length,
        output: &config.run.output_dir,
        seed: config.run.seed,
        start,
        probe: probes.as_ref().map(|probes| probes as &dyn Probe),
        loss_band: None,
        parent,
    };
    let training =
        Training { request: &request, resolved, origin, prepared, machine, progress, signals: &signals };
    list::pretrained(resolved.task(), training)
}

/// A run whose task is known by its name.
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
        if machine.world.is_first() {
            let scores = outcome.results.iter();
            let scores = scores.filter_map(|(name, value)| Some((name.strip_prefix("eval_")?, *value)));
            scores
                .filter_map(|(name, value)| finds_nothing(name, value))
                .for_each(|text| progress.warn(&text));
        }
        let tokenizer = &outcome.data.tokenizer;
        let filled = sample(config, &outcome.task, tokenizer)?;
        let mask = tokenizer.special().mask().ok().and_then(|mask| tokenizer.token(mask)).unwrap_or_default();
        let next = next_step::after_pretraining(&outcome.model, &mask, config.run.sample_text.as_deref());
        Ok(Ended { lines: report(config, &outcome, &filled, machine), next })
    }
}

/// Where the loss is expected, if the configuration says it of such a run.
fn loss_band<'a>(
    config: &'a PretrainConfig,
    kind: &impl Kind,
    progress: &Progress,
) -> Result<Option<&'a LossBand>> {
    let Some(band) = &config.evaluation.loss_band else { return Ok(None) };
    let inputs = kind.inputs()?;
    let of = config.likeness(&inputs.values().map(String::as_str).collect::<Vec<&str>>());
    if of.as_ref() == Some(&band.of) {
        return Ok(Some(band));
    }
    let text = "note: `evaluation.loss_band` is ignored: it belongs to other settings or data than these";
    progress.note(&format!("{text} (`{}`)", of.unwrap_or_default()));
    Ok(None)
}

/// The lines at the end of a run.
fn report<T, D>(
    config: &PretrainConfig,
    outcome: &Outcome<T, D>,
    filled: &[Vec<Candidate>],
    machine: &Machine,
) -> Vec<String> {
    let mut lines = vec![match outcome.end {
        None => format!("this run is complete ({} steps); nothing was done", outcome.step),
        Some(End::Time) => format!(
            "the time budget is used up after {} steps, before the learning rate has decayed",
            outcome.step
        ),
        Some(End::Patience) => format!("stopped after {} steps: evaluation no longer improves", outcome.step),
        Some(End::Steps | End::Signal(_)) => format!("trained {} steps", outcome.step),
    }];
    let value = |name: &str| outcome.results.get(name).copied();
    let mut row =
        |name: &str, text: Option<String>| lines.extend(text.map(|text| format!("  {name:20} {text}")));
    let number = |name: &str| value(name).map(|v| measured(v, |v| format!("{v:.4}")));
    let percent = |name: &str| value(name).map(|v| measured(v, |v| format!("{:.1} %", 100.0 * v)));
    row("validation loss", number("eval_loss"));
    let predicted = value("eval_predicted_tokens").filter(|&tokens| tokens < FEW_PREDICTED);
    row("tokens predicted", predicted.map(|tokens| format!("{tokens}: too few to tell much")));
    for (task, told) in [("nsp", "next segment"), ("sop", "segment order")] {
        row(&format!("{told}: right"), percent(&format!("eval_{task}_accuracy")));
        let baseline = percent(&format!("eval_{task}_baseline_accuracy"));
        row("baseline", baseline.map(|v| format!("{v} (always guessing the more frequent class)")));
    }
    row("generator loss", number("eval_generator_loss"));
    row("generator accuracy", percent("eval_generator_accuracy"));
    row("discriminator loss", number("eval_discriminator_loss"));
    row(
        "baseline",
        number("eval_discriminator_baseline_loss")
            .map(|v| format!("{v} (always guessing the rate of replacement)")),
    );
    row("replaced: precision", percent("eval_replaced_precision"));
    row("replaced: recall", percent("eval_replaced_recall"));
    row("generator guessed the original", percent("eval_sampled_equal_share"));
    row("perplexity", value("eval_perplexity").map(|v| measured(v, |v| format!("{v:.1}"))));
    row("masked accuracy", percent("eval_accuracy"));
    row(
        "unigram baseline",
        number("eval_unigram_loss").map(|v| format!("{v} (always guessing by frequency alone)")),
    );
    row("tokens/s", value("train_tokens_per_second").map(|v| format_count(v.round() as u64)));
    row(
        "training time",
        value("train_runtime").map(|v| format_duration(std::time::Duration::from_secs_f64(v.max(0.0)))),
    );
    let cost = config.run.usd_per_hour.zip(value("train_runtime"));
    row("cost", cost.map(|(usd, seconds)| format!("${}", format_amount(usd * seconds / 3600.0))));
    if let (Some(tokens), Some(speed), true) =
        (value("train_num_input_tokens_seen"), value("train_tokens_per_second"), outcome.end.is_some())
    {
        let taken = Taken::on(machine, tokens, speed);
        let told = compared(&config.run.output_dir, machine, taken);
        ["planned", "actual"].into_iter().zip(told).for_each(|(name, text)| row(name, Some(text)));
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

/// A token as a reader sees it: a leading space is visible by the quotes.
fn quoted(token: &str) -> String {
    format!("{token:?} ")
}
