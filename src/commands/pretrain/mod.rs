//! `mlmtrain pretrain`: trains a masked language model on raw text.

mod plan;

use anyhow::Result;

use crate::commands::config_args::PretrainArgs;
use crate::commands::config_args::Resume;
use crate::commands::prepare;
use crate::commands::terminal;
use crate::config::PretrainConfig;
use crate::config::PretrainTask;
use crate::error::Class;
use crate::error::Problem;
use crate::machine;
use crate::quantity::format_count;
use crate::quantity::format_duration;
use crate::tasks::masked_lm::Pretraining;
use crate::tasks::masked_lm::fill_mask::Candidate;
use crate::tasks::masked_lm::pretraining::sample;
use crate::telemetry::Progress;
use crate::train;
use crate::train::End;
use crate::train::resume::Start;
use crate::train::run::Outcome;
use crate::train::run::Request;
use crate::train::signals::Signals;

/// Runs the subcommand.
pub fn run(args: &PretrainArgs) -> Result<()> {
    let config = args.config.load()?.config;
    let machine = machine::set_up(&config.run, &config.precision)?;
    if args.dry_run {
        return plan::pretrain(&config, &machine)?
            .into_iter()
            .try_for_each(|line| terminal::stdout_line(&line));
    }
    let progress = Progress::detect(terminal::is_quiet());
    machine.announce(&progress);
    let prepared = prepare::ensure_prepared(&config, &progress)?;
    for line in prepare::summary(&config, &prepared) {
        progress.note(&line);
    }
    let start = match &args.resume {
        Resume::Auto => Start::Auto,
        Resume::Never => Start::Fresh,
        Resume::From(path) => Start::At(path.clone()),
    };
    let request = Request {
        config: &config,
        run: &config.run,
        training: &config.training,
        precision: &config.precision,
        max_seq_length: config.data.max_seq_length,
        output: &config.run.output_dir,
        seed: config.run.seed,
        start: &start,
    };
    let signals = Signals::listen()?;
    match config.task {
        PretrainTask::MaskedLm => {
            let kind = Pretraining::new(&config, prepared)?;
            let run = || train::run::run(kind, &request, &machine, &progress, &signals);
            let outcome = machine::in_pool(run)?;
            if let Some(End::Signal(signal)) = outcome.end {
                return Err(interrupted(signal, outcome.step).into());
            }
            let filled = sample(&config, &outcome.task, &outcome.data.tokenizer)?;
            report(&config, &outcome, &filled).into_iter().try_for_each(|line| terminal::stdout_line(&line))
        }
    }
}

/// What a signal ends with: the state is safe.
pub(super) fn interrupted(signal: u8, step: u64) -> Problem {
    let by = if signal == 2 { "Ctrl-C".to_string() } else { format!("signal {signal}") };
    Problem::new(format!("stopped by {by}; step {step} is saved"))
        .class(Class::Interrupted(signal))
        .hint("the same command continues from there")
}

/// The lines at the end of a run.
fn report<T, D>(config: &PretrainConfig, outcome: &Outcome<T, D>, filled: &[Vec<Candidate>]) -> Vec<String> {
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
    row("validation loss", value("eval_loss").map(|v| format!("{v:.4}")));
    row("perplexity", value("eval_perplexity").map(|v| format!("{v:.1}")));
    row("masked accuracy", value("eval_accuracy").map(|v| format!("{:.1} %", 100.0 * v)));
    row(
        "unigram baseline",
        value("eval_unigram_loss")
            .map(|v| format!("{v:.4} (loss of knowing only how frequent each token is)")),
    );
    row("tokens/s", value("train_tokens_per_second").map(|v| format_count(v.round() as u64)));
    row(
        "training time",
        value("train_runtime").map(|v| format_duration(std::time::Duration::from_secs_f64(v.max(0.0)))),
    );
    let cost = config.run.usd_per_hour.zip(value("train_runtime"));
    row("cost", cost.map(|(usd, seconds)| format!("${:.2}", usd * seconds / 3600.0)));
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
