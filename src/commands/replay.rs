//! `mlmtrain replay`: the step on which a run diverged, once more and on its own.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::batches::Batch;
use crate::commands::terminal;
use crate::train::replay::Observation;
use crate::train::replay::Replay;
use crate::train::replay::Stage;
use crate::train::replay::first_not_finite;

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
    let seen = replay.run()?;
    if args.json {
        return seen.iter().try_for_each(|seen| terminal::stdout_line(&serde_json::to_string(seen)?));
    }
    let failed = &replay.failed;
    let tokens: usize = failed.micro.iter().map(Batch::num_tokens).sum();
    let summary = replay.machine.summary();
    terminal::stdout_line(&format!("step {}, {tokens} tokens, {summary}: {}", failed.step, failed.problem))?;
    lines(&seen).iter().try_for_each(|line| terminal::stdout_line(line))
}

/// A row for each tensor that the batch went through, one for all parameters, one for all gradients, and
/// where it began.
fn lines(seen: &[Observation]) -> Vec<String> {
    let of = |stage: Stage| seen.iter().filter(move |seen| seen.stage == stage);
    let all = |stage: Stage, name: &str| {
        let not_finite: usize = of(stage).map(|seen| seen.not_finite).sum();
        let largest = of(stage).map(|seen| seen.largest).fold(0.0, f64::max);
        format!("  {name:36} {:>12} {largest:>12.4e} {not_finite:>12}", "")
    };
    let mut lines = vec![format!("  {:36} {:>12} {:>12} {:>12}", "", "rms", "largest", "not finite")];
    lines.push(all(Stage::Parameter, "parameters"));
    for seen in of(Stage::HiddenStates).chain(of(Stage::Loss)) {
        let kind = if seen.stage == Stage::Loss { " (sum)" } else { "" };
        let name = format!("{}: {}{kind}", seen.micro_batch.unwrap_or(1), seen.name);
        let Observation { rms, largest, not_finite, .. } = seen;
        lines.push(format!("  {name:36} {rms:>12.4e} {largest:>12.4e} {not_finite:>12}"));
    }
    lines.push(all(Stage::Gradient, "gradients"));
    lines.push(match first_not_finite(seen) {
        None => "every value is finite".to_string(),
        Some(first) => {
            let what = match first.stage {
                Stage::Parameter => "the parameter",
                Stage::HiddenStates => "what comes out of",
                Stage::Loss => "the sum of",
                Stage::Gradient => "the gradient of",
            };
            let of = first.micro_batch.map(|n| format!(" in micro-batch {n}")).unwrap_or_default();
            format!(
                "the first tensor that is not finite: {what} `{}`{of}, {} of {} values",
                first.name, first.not_finite, first.elements
            )
        }
    });
    lines
}
