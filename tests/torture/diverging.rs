//! Row `diverging`: learning rates that spoil any model. The run must end with 76, leave its checkpoints whole
//! and the step that failed, which `mlmtrain replay` must find its way through; and so again when it is
//! started again.
//!
//! Losses that are planted in the data (skip, roll back) are tested in `src/training/train/tests/divergence.rs`:
//! the program has no door for them.

use std::process::Command;

use anyhow::Result;

use crate::draw::Draw;
use crate::job::Job;
use crate::place::{Bench, Place};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let count = bench.count(3, 30);
    let mut misses = Vec::new();
    for number in 0..count {
        let rate = 200.0 * 10f64.powi(Draw::new(bench.seed, "diverging", number).below(4) as i32);
        misses.extend(fault(bench, job, rate)?.map(|fault| format!("rate {rate}: {fault}")));
    }
    let mut control = Control::default();
    control.expect("a rate that learns", fault(bench, job, 1e-3)?.as_ref());
    Ok(control.outcome(format!("{} of {count} runs ended so", count - misses.len()), misses))
}

/// What is wrong with how a run with this rate ends.
fn fault(bench: &Bench, job: Job, rate: f64) -> Result<Option<String>> {
    let place = bench.place()?;
    let rate = format!("training.learning_rate={rate}");
    let sets = [rate.as_str(), "training.lr_scheduler_type=constant", "training.warmup_steps=0"];
    let sets = [&sets[..], &["training.save_steps=4", "training.eval_steps=0"]].concat();
    let mut left = Vec::new();
    for _ in 0..2 {
        let ended = Sitting::start(bench.command(job, &place, &sets), &place)?.finish()?;
        if let Some(fault) = ended.fault(&[76]) {
            return Ok(Some(fault));
        }
        if !ended.stderr.contains("training diverges") {
            return Ok(Some(format!("does not say that it diverges: {}", ended.stderr)));
        }
        let names = place.names().into_iter();
        left.push(names.filter(|name| name.starts_with("diverged-")).collect::<Vec<_>>());
    }
    let [first, second] = &left[..] else { unreachable!("two sittings") };
    if first.len() != 1 || first != second {
        return Ok(Some(format!("left {first:?}, then {second:?}")));
    }
    let replayed = asked(bench, &place, &["replay", &place.run_path(&first[0]).display().to_string()])?;
    let verified =
        asked(bench, &place, &["checkpoint", "verify", &place.run_path("").display().to_string()])?;
    Ok(replayed.or(if place.checkpoints().is_empty() { None } else { verified }))
}

/// What is wrong with how the program answers.
fn asked(bench: &Bench, place: &Place, arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new(&bench.program);
    command.args(arguments);
    Ok(Sitting::start(command, place)?.finish()?.fault(&[0]))
}
