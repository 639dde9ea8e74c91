//! `mlmtrain replay`: repeats the step in which a run diverged, and reports its tensors.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::batches::Batch;
use crate::commands::terminal;
use crate::train::replay::{Observation, Replay, Stage, first_not_finite};

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The folder `diverged-<step>` of a run, or a file in it
    #[arg(value_name = "FOLDER")]
    pub path: PathBuf,
    /// Print a JSON object for every tensor: parameters, hidden states, losses, gradients
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let replay = Replay::open(&args.path)?;
    let observations = replay.run()?;
    if args.json {
        return observations.iter().try_for_each(|one| terminal::stdout_line(&serde_json::to_string(one)?));
    }
    let failed = &replay.failed;
    let tokens: usize = failed.micro.iter().map(Batch::num_tokens).sum();
    let summary = replay.machine.summary();
    terminal::stdout_line(&format!("step {}, {tokens} tokens, {summary}: {}", failed.step, failed.problem))?;
    lines(&observations).iter().try_for_each(|line| terminal::stdout_line(line))
}

/// The observations of one stage.
fn in_stage(observations: &[Observation], stage: Stage) -> impl Iterator<Item = &Observation> {
    observations.iter().filter(move |one| one.stage == stage)
}

/// One row for all tensors of a stage.
fn stage_line(observations: &[Observation], stage: Stage, name: &str) -> String {
    let not_finite: usize = in_stage(observations, stage).map(|one| one.not_finite).sum();
    let largest = in_stage(observations, stage).map(|one| one.largest).fold(0.0, f64::max);
    format!("  {name:36} {:>12} {largest:>12.4e} {not_finite:>12}", "")
}

/// Returns a row for all parameters, one for each hidden state and loss, one for all gradients, and a line
/// about the first tensor with a value that is not finite.
fn lines(observations: &[Observation]) -> Vec<String> {
    let mut lines = vec![format!("  {:36} {:>12} {:>12} {:>12}", "", "rms", "largest", "not finite")];
    lines.push(stage_line(observations, Stage::Parameter, "parameters"));
    let hidden = in_stage(observations, Stage::HiddenStates);
    for one in hidden.chain(in_stage(observations, Stage::Loss)) {
        let kind = if one.stage == Stage::Loss { " (sum)" } else { "" };
        let name = format!("{}: {}{kind}", one.micro_batch.unwrap_or(1), one.name);
        let Observation { rms, largest, not_finite, .. } = one;
        lines.push(format!("  {name:36} {rms:>12.4e} {largest:>12.4e} {not_finite:>12}"));
    }
    lines.push(stage_line(observations, Stage::Gradient, "gradients"));
    lines.push(match first_not_finite(observations) {
        None => "every value is finite".to_string(),
        Some(first) => {
            let what = match first.stage {
                Stage::Parameter => "the parameter",
                Stage::HiddenStates => "what comes out of",
                Stage::Loss => "the sum of",
                Stage::Gradient => "the gradient of",
            };
            let place = first.micro_batch.map(|n| format!(" in micro-batch {n}")).unwrap_or_default();
            format!(
                "the first tensor that is not finite: {what} `{}`{place}, {} of {} values",
                first.name, first.not_finite, first.elements
            )
        }
    });
    lines
}
