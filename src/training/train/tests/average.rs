//! Whole runs that average their weights: what is evaluated and written, rollbacks, and interruptions.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::Tensor;

use super::divergence::{STEPS, run, training};
use super::records;
use super::whole::{Toy, whole_run};
use crate::train::End;
use crate::train::average::TRAINED;
use crate::train::checkpoint_files::{MODEL, OPTIMIZER};
use config::{TrainingConfig, WeightAverage};
use model::checkpoint::{Checkpoint, CheckpointStore};

fn averaging() -> TrainingConfig {
    let average = WeightAverage { decay: 0.9, start_step: 5, every: 2, ..WeightAverage::default() };
    TrainingConfig { weight_average: Some(average), eval_steps: 4, ..training() }
}

/// Half the squared distance of these weights from one, which the toy task calls its loss.
fn loss_of(tensors: &BTreeMap<String, Tensor>, name: &str) -> f64 {
    let values = tensors[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    values[..6].iter().map(|w| 0.5 * f64::from(w - 1.0).powi(2)).sum()
}

fn ended_with(folder: &Path) -> Vec<Vec<u8>> {
    let files = [MODEL, TRAINED, OPTIMIZER].map(|name| format!("checkpoint-{STEPS}/{name}"));
    let files = files.iter().map(String::as_str).chain(["final/model.safetensors"]);
    files.map(|name| std::fs::read(folder.join(name)).unwrap()).collect()
}

#[test]
fn the_average_is_evaluated_and_written_and_training_goes_on_with_the_weights() {
    let [plain, averaged] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let all = TrainingConfig { save_total_limit: 100, ..averaging() };
    run(plain.path(), &TrainingConfig { weight_average: None, ..all.clone() }, &[], None).unwrap();
    run(averaged.path(), &all, &[], None).unwrap();
    let open =
        |folder: &Path, step: u64| Checkpoint::open(&CheckpointStore::new(folder).path_of(step)).unwrap();
    let evaluated: BTreeMap<u64, f64> = records(averaged.path())
        .iter()
        .filter_map(|record| Some((record["step"].as_u64()?, record["eval/loss"].as_f64()?)))
        .collect();
    for step in (4..=STEPS).step_by(4) {
        let saved = open(averaged.path(), step);
        let [model, trained] = [MODEL, TRAINED].map(|name| saved.tensors(name).unwrap());
        let [own, weights] = [loss_of(&model, "w"), loss_of(&trained, "weights")];
        // The weights are those of a run without an average, and so is the model before the first averaging.
        let without = open(plain.path(), step).tensors(MODEL).unwrap();
        assert_eq!(weights.to_bits(), loss_of(&without, "w").to_bits(), "step {step}");
        assert_eq!(own.to_bits() == weights.to_bits(), step < 7, "step {step}");
        assert!((evaluated[&step] - own).abs() < 1e-12, "the model of step {step} is what was evaluated");
    }
    let last = open(averaged.path(), STEPS).path().join(MODEL);
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(&averaged.path().join("final").join(MODEL)) == read(&last));
}

#[test]
fn rollbacks_and_interruptions_change_no_bit() {
    let planted = [(9..19, f64::NAN), (33..43, 1e9)];
    let [undisturbed, rolled_back] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    run(undisturbed.path(), &averaging(), &[], None).unwrap();
    run(rolled_back.path(), &averaging(), &planted, None).unwrap();
    assert!(ended_with(rolled_back.path()) == ended_with(undisturbed.path()));
    for sample in (0..60).step_by(3) {
        let folder = tempfile::tempdir().unwrap();
        let end = run(folder.path(), &averaging(), &planted, Some(sample)).unwrap().end;
        assert_eq!(end, Some(End::Signal(15)), "sample {sample}");
        assert_eq!(run(folder.path(), &averaging(), &planted, None).unwrap().end, Some(End::Steps));
        assert!(ended_with(folder.path()) == ended_with(undisturbed.path()), "sample {sample}");
        assert_eq!(records(folder.path()), records(rolled_back.path()), "sample {sample}");
    }
}

#[test]
fn a_skipped_step_averages_nothing() {
    let each = WeightAverage { decay: 0.9, ..WeightAverage::default() };
    let [skipping, without] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let training = TrainingConfig { weight_average: Some(each), ..training() };
    run(skipping.path(), &training, &[(5..6, f64::NAN), (20..29, f64::INFINITY)], None).unwrap();
    let fewer = TrainingConfig { max_steps: STEPS as i64 - 10, ..training };
    run(without.path(), &fewer, &[], None).unwrap();
    let trained = |folder: &Path, step: u64| {
        let checkpoint = folder.join(format!("checkpoint-{step}"));
        [MODEL, TRAINED].map(|name| std::fs::read(checkpoint.join(name)).unwrap())
    };
    assert!(trained(skipping.path(), STEPS) == trained(without.path(), STEPS - 10));
}

#[test]
fn the_best_checkpoint_is_written_with_its_average() {
    let folder = tempfile::tempdir().unwrap();
    let training = TrainingConfig { loss_spike_threshold: 0.0, load_best_model_at_end: true, ..averaging() };
    let toy = Toy { leaves_minimum_from: Some(20), ..Toy::default() };
    let outcome = whole_run(toy, folder.path(), &training, 0).unwrap();
    let evaluated: Vec<(u64, f64)> = records(folder.path())
        .iter()
        .filter_map(|record| Some((record["step"].as_u64()?, record["eval/loss"].as_f64()?)))
        .collect();
    let (best, _) = *evaluated.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!((8..STEPS).contains(&best), "the best of {evaluated:?} is step {best}");
    let read = |name: String| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read(format!("checkpoint-{best}/{MODEL}")) == read(format!("final/{MODEL}")));
    let task = outcome.task.loss().unwrap();
    assert!((outcome.results["eval_loss"] - task).abs() < 1e-12, "the model that is left is the written one");
}
