//! Row `resume`: a run goes on from the checkpoint of each of its steps, and always comes to the same end.

use std::fs;

use anyhow::{Context, Result};
use mlmtrain::checkpoint::{Checkpoint, write_tensors};

use crate::compare;
use crate::draw::{Draw, on_all_cores};
use crate::job::{Job, STEPS};
use crate::place::{Bench, Place};
use crate::readers::{copy_tree, reseal};
use crate::table::{Control, Outcome};

const OPTIMIZER: &str = "trainer/optimizer.safetensors";

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let source = bench.place()?;
    bench.finish(job, &source, &["training.save_steps=1", "training.save_total_limit=100"])?.ok()?;
    let mut draw = Draw::new(bench.seed, "resume", 0);
    let steps: Vec<u64> = match bench.count(0, 1) {
        0 => vec![1, 2 + draw.below(STEPS as usize - 3) as u64, STEPS - 1],
        _ => (1..=STEPS).collect(),
    };
    let faults = on_all_cores(steps.len(), |number| go_on(bench, job, &source, steps[number], |_| Ok(())))?;
    let misses: Vec<String> = faults.into_iter().flatten().collect();
    let (equal, count) = (steps.len() - misses.len(), steps.len());
    let mut control = Control::default();
    control.expect(
        "no cursor",
        go_on(bench, job, &source, 20, |place| compare::forget_cursor(&place.run_path("checkpoint-20")))?
            .as_ref(),
    );
    control.expect("no moments", go_on(bench, job, &source, 20, forget_moments)?.as_ref());
    if job == Job::F16 {
        control.expect("no loss scale", go_on(bench, job, &source, 20, forget_scale)?.as_ref());
    }
    Ok(control.outcome(format!("{equal} of {count} steps byte-equal"), misses))
}

/// Goes on after `step` in a folder that holds only its checkpoint, and the records of the whole run.
fn go_on(
    bench: &Bench,
    job: Job,
    source: &Place,
    step: u64,
    sabotage: impl FnOnce(&Place) -> Result<()>,
) -> Result<Option<String>> {
    let (place, reference) = (bench.place()?, bench.reference(job)?);
    let name = format!("checkpoint-{step}");
    copy_tree(&source.run_path(&name), &place.run_path(&name))?;
    fs::copy(source.run_path("metrics.jsonl"), place.run_path("metrics.jsonl"))?;
    sabotage(&place)?;
    // Cadences may change between sittings; the checkpoints in between are not looked at.
    let ended = bench.finish(job, &place, &["training.save_steps=25"])?;
    let is_resumed = ended.stderr.contains(&format!("resuming after step {step} of"));
    let fault = match ended.fault(&[0]) {
        None if !is_resumed => Some(format!("it did not go on: {}", ended.stderr)),
        None => reference.difference(&place),
        fault => fault,
    };
    Ok(fault.map(|fault| format!("after step {step}: {fault}")))
}

/// Moments of the optimizer as at the beginning of a run.
fn forget_moments(place: &Place) -> Result<()> {
    let folder = place.run_path("checkpoint-20");
    let tensors = Checkpoint::open(&folder)?.tensors(OPTIMIZER)?;
    let forget = |(name, tensor): (String, candle_core::Tensor)| {
        let is_moment = tensor.dtype() == candle_core::DType::F32;
        anyhow::Ok((name, if is_moment { tensor.zeros_like()? } else { tensor }))
    };
    let tensors = tensors.into_iter().map(forget).collect::<Result<Vec<_>>>()?;
    let mut bytes = Vec::new();
    write_tensors(&mut bytes, &tensors)?;
    fs::write(folder.join(OPTIMIZER), bytes)?;
    reseal(&folder, OPTIMIZER)
}

/// A loss scale as at the beginning of a run.
fn forget_scale(place: &Place) -> Result<()> {
    let folder = place.run_path("checkpoint-20");
    let state = compare::read_json(&folder.join("trainer/state.json"))?;
    state["loss_scale"].as_object().context("f16 has a loss scale")?;
    compare::forge(&folder, "trainer/state.json", |state| {
        state["loss_scale"]["scale"] = 1024.0.into();
        state["loss_scale"]["good_steps"] = 0.into();
    })
}
