//! Runs in which losses that are not finite or far too large are planted in the data.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;

use super::whole::{Toy, whole_run};
use super::{Parabola, Steps, records};
use crate::train::End;
use crate::train::rollback::FailedStep;
use crate::train::run::Outcome;
use base::error::{Class, class_of, render};
use config::{SchedulerType, TrainingConfig};

pub(super) const STEPS: u64 = 40;

/// With a constant learning rate a step does the same whatever its number.
pub(super) fn training() -> TrainingConfig {
    TrainingConfig {
        lr_scheduler_type: SchedulerType::Constant,
        save_steps: 4,
        save_total_limit: 2,
        max_steps: STEPS as i64,
        ..super::config()
    }
}

pub(super) fn run(
    folder: &Path,
    training: &TrainingConfig,
    planted: &[(Range<u64>, f64)],
    signal_at: Option<u64>,
) -> Result<Outcome<Parabola, Steps>> {
    let data = Steps { signal_at, ..Steps::default() };
    whole_run(Toy { data, planted: planted.to_vec(), ..Toy::default() }, folder, training, 0)
}

/// The weights and moments at the end of a run.
pub(super) fn ended_with(folder: &Path, steps: u64) -> Vec<Vec<u8>> {
    let checkpoint = folder.join(format!("checkpoint-{steps}"));
    ["model.safetensors", "trainer/optimizer.safetensors"]
        .map(|name| std::fs::read(checkpoint.join(name)).unwrap())
        .into()
}

fn counted(folder: &Path, tag: &str) -> Option<f64> {
    records(folder).iter().rev().find_map(|record| record[tag].as_f64())
}

#[test]
fn a_skipped_batch_leaves_the_run_as_if_it_had_not_been_there() {
    for loss in [f64::NAN, f64::INFINITY] {
        let skipping = tempfile::tempdir().unwrap();
        let without = tempfile::tempdir().unwrap();
        run(skipping.path(), &training(), &[(5..6, loss), (20..29, loss)], None).unwrap();
        let fewer = TrainingConfig { max_steps: STEPS as i64 - 10, ..training() };
        run(without.path(), &fewer, &[], None).unwrap();
        assert!(ended_with(skipping.path(), STEPS) == ended_with(without.path(), STEPS - 10));
        assert_eq!(counted(skipping.path(), "train/skipped_steps"), Some(10.0));
        assert_eq!(counted(skipping.path(), "train/rollbacks"), None);
    }
}

#[test]
fn ten_bad_steps_lead_back_to_a_checkpoint_and_past_their_data() {
    for loss in [f64::NAN, f64::INFINITY, 1e9] {
        assert_rollbacks(STEPS, &[(10..20, loss)], 1.0);
    }
    // A checkpoint after each divergence resets the count of rollbacks, so that four of them are allowed.
    let four = [10..20, 40..50, 70..80, 100..110].map(|samples| (samples, f64::NAN));
    assert_rollbacks(80, &four, 4.0);
}

/// Asserts the number of rollbacks of a run with planted losses, which ends as one without them.
fn assert_rollbacks(steps: u64, planted: &[(Range<u64>, f64)], rollbacks: f64) {
    let training = TrainingConfig { max_steps: steps as i64, ..training() };
    let folder = tempfile::tempdir().unwrap();
    let undisturbed = tempfile::tempdir().unwrap();
    run(undisturbed.path(), &training, &[], None).unwrap();
    let folder = folder.path();
    assert_eq!(run(folder, &training, planted, None).unwrap().end, Some(End::Steps));
    assert!(ended_with(folder, steps) == ended_with(undisturbed.path(), steps));
    assert_eq!(counted(folder, "train/rollbacks"), Some(rollbacks));
    let records = records(folder).into_iter().filter(|record| !record["train/learning_rate"].is_null());
    let steps: Vec<u64> = records.map(|record| record["step"].as_u64().unwrap()).collect();
    assert!(steps.is_sorted_by(|a, b| a < b), "what was dropped is still logged: {steps:?}");
}

#[test]
fn an_interruption_at_any_step_changes_nothing_of_it() {
    let planted = [(9..19, f64::NAN), (33..43, 1e9)];
    let limits = [1, 2].map(|save_total_limit| TrainingConfig { save_total_limit, ..training() });
    let undisturbed = limits.clone().map(|training| {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &training, &planted, None).unwrap();
        folder
    });
    for sample in 0..60 {
        // A checkpoint is written every fourth step: each step after it meets both limits.
        let which = usize::from(sample % 5 % 2 == 1);
        let training = &limits[which];
        let undisturbed = undisturbed[which].path();
        let folder = tempfile::tempdir().unwrap();
        let end = run(folder.path(), training, &planted, Some(sample)).unwrap().end;
        assert_eq!(end, Some(End::Signal(15)), "sample {sample}");
        assert_eq!(run(folder.path(), training, &planted, None).unwrap().end, Some(End::Steps));
        assert!(ended_with(folder.path(), STEPS) == ended_with(undisturbed, STEPS));
        assert_eq!(records(folder.path()), records(undisturbed), "sample {sample}");
    }
}

#[test]
fn a_run_that_cannot_be_helped_ends_with_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), &training(), &[(10..1000, f64::NAN)], None).err().unwrap();
    assert_eq!((class_of(&error), class_of(&error).exit_code()), (Class::Diverged, 76));
    let text = render(&error);
    assert!(
        text.contains("3 rollbacks have not helped") && text.contains("the loss is NaN in step 14"),
        "{text}"
    );
    let path = folder.path().join("diverged-14");
    assert!(text.contains(&format!("`mlmtrain replay {}`", path.display())), "{text}");
    let saved = std::fs::read(path.join("trainer/batch.json")).unwrap();
    let failed: FailedStep = serde_json::from_slice(&saved).unwrap();
    // Ten samples for each of three rollbacks, and the last one of ten more.
    assert_eq!(
        (failed.step, failed.micro[0].sample_ids[0], failed.problem.as_str()),
        (14, 49, "the loss is NaN")
    );
    let weights = path.join("model.safetensors");
    let good = folder.path().join("checkpoint-4/model.safetensors");
    assert!(std::fs::read(weights).unwrap() == std::fs::read(good).unwrap(), "nothing was learnt from them");
}

#[test]
fn a_missing_checkpoint_to_go_back_to_is_reported() {
    for (save_steps, planted) in [(0, 30..1000), (4, 2..1000)] {
        let folder = tempfile::tempdir().unwrap();
        let training = TrainingConfig { save_steps, ..training() };
        let error = run(folder.path(), &training, &[(planted, f64::NAN)], None).err().unwrap();
        assert_eq!(class_of(&error), Class::Diverged);
        assert!(error.to_string().contains("there is no checkpoint from before them"), "{error}");
    }
}
