//! Predictions compared with the same arithmetic by hand, and configurations that fit or do not fit.

use super::*;
use crate::config::{
    BatchSizeRamp, ComputeChoice, OptimizerType, PrecisionConfig, TrainingConfig, TrainingPhase,
};
use crate::families::{ModelConfig, named_model};
use crate::models::Blueprint;
use crate::tasks::run::{Shapes, TargetShare};

fn masked_lm(model: &ModelConfig, length: usize) -> Shapes {
    Shapes {
        outline: Box::new(Blueprint::masked_lm(model)),
        model: model.clone(),
        length,
        targets: TargetShare::OfTokens(0.15),
    }
}

fn training(rows: usize, micro_batches: usize) -> TrainingConfig {
    TrainingConfig {
        per_device_train_batch_size: rows.into(),
        gradient_accumulation_steps: micro_batches,
        gradient_checkpointing: false.into(),
        ..TrainingConfig::default()
    }
}

fn estimate_on(
    gpu: &str,
    training: &TrainingConfig,
    shapes: &Shapes,
    steps: u64,
) -> Result<Estimate, String> {
    let gpu = Rentable::named(gpu).expect("it is in the catalogue");
    Estimate::on_gpu(&gpu, training, shapes, &PrecisionConfig::default(), |training| {
        Work::new(training, shapes.length, steps)
    })
}

#[test]
fn micro_batches_are_counted_by_their_sizes_through_phases_and_a_ramp() {
    let training = TrainingConfig {
        phases: vec![TrainingPhase {
            per_device_train_batch_size: Some(32),
            ..TrainingPhase::of_length(10, 128)
        }],
        batch_size_ramp: BatchSizeRamp { start_micro_batches: 2, steps: 4 },
        ..training(8, 6)
    };
    let work = Work::new(&training, 512, 15);
    // The ramp has 2, 3, 4, 5, then six times 6 micro-batches of short rows; five times 6 of long rows
    // follow.
    let short = Part { rows: 32, length: 128, is_causal: false, micro_batches: 50, updates: 10 };
    let long = Part { rows: 8, length: 512, is_causal: false, micro_batches: 30, updates: 5 };
    assert_eq!(work.parts, [short, long]);
    assert_eq!(work.tokens(), 50 * 4096 + 30 * 4096);
}

#[test]
fn a_prediction_is_operations_at_a_share_of_the_data_sheet_and_the_bytes_of_updates() {
    let base = named_model("base").unwrap();
    let shapes = masked_lm(&base, 128);
    let found = estimate_on("h100", &training(64, 2), &shapes, 1000).unwrap();
    // 6 x 85.1M x 8,192 tokens and attention, and the head on 1,229 rows: 4.6 TFLOP per micro-batch.
    let flops = Blueprint::masked_lm(&base).flops(8192.0, 128.0, 1229.0);
    let update = 124_697_433.0 * 30.0 / (0.8 * 3350e9);
    let wanted = 1000.0 * (2.0 * flops / (0.35 * 989.4e12) + update);
    assert!((found.seconds / wanted - 1.0).abs() < 1e-6, "{} {wanted}", found.seconds);
    assert!((found.tokens_per_second * found.seconds / (1000.0 * 16_384.0) - 1.0).abs() < 1e-9);
    assert!((found.usd(3600.0) - found.seconds).abs() < 1e-6);
    assert!((found.kilowatt_hours(1000.0) * 3600.0 - found.seconds).abs() < 1e-6);
    let muon = TrainingConfig { optim: OptimizerType::Muon, ..training(64, 2) };
    let other = estimate_on("h100", &muon, &shapes, 1000).unwrap();
    // 8 bytes less for each of 84.9M elements of matrices; 12 layers with four square matrices and two
    // others.
    let square = 5.0 * 6.0 * 768f64.powi(3);
    let long = 5.0 * 2.0 * 768f64.powi(2) * (2.0 * 3072.0 + 768.0);
    let more = 12.0 * (4.0 * square + 2.0 * long) / (0.35 * 989.4e12);
    let less = 8.0 * 12.0 * 12.0 * 768.0 * 768.0 / (0.8 * 3350e9);
    let wanted = found.seconds + 1000.0 * (more - less);
    assert!((other.seconds / wanted - 1.0).abs() < 1e-6, "{} {wanted}", other.seconds);
    let tiny = masked_lm(&named_model("tiny").unwrap(), 128);
    let waits = estimate_on("h100", &training(8, 1), &tiny, 1000).unwrap();
    assert!((3.0..3.1).contains(&waits.seconds), "launches are the limit: {}", waits.seconds);
}

#[test]
fn a_configuration_that_does_not_fit_is_checkpointed_and_then_cut_into_smaller_micro_batches() {
    let large = named_model("large").unwrap();
    let shapes = masked_lm(&large, 512);
    let given = training(64, 4);
    let h200 = estimate_on("h200", &given, &shapes, 10).unwrap();
    assert!(h200.fitted.is_as_given && h200.fitted.training == given);
    let l4 = estimate_on("l4", &given, &shapes, 10).unwrap().fitted;
    assert!(!l4.is_as_given && l4.training.gradient_checkpointing.is_on());
    assert_eq!(l4.training.rows_at_once(), 64);
    let t4 = estimate_on("t4", &training(256, 1), &shapes, 10).unwrap();
    let cut = &t4.fitted.training;
    assert!(!t4.fitted.is_as_given && cut.rows_at_once() < 256);
    assert_eq!(cut.rows_per_update(), 256);
    assert!(t4.fitted.prediction.total() <= t4.fitted.room_bytes);
    assert_eq!(t4.compute, candle_core::DType::F16, "a T4 has no bf16");
}

#[test]
fn an_impossible_run_is_an_error_with_its_reason() {
    let shapes = masked_lm(&named_model("base").unwrap(), 128);
    let given = training(8, 1);
    assert_eq!(
        estimate_on("v100", &given, &shapes, 1).unwrap_err(),
        "no code for it: a T4 or newer is wanted"
    );
    let t4 = Rentable::named("T4").unwrap();
    let wanted = PrecisionConfig { compute: ComputeChoice::Bf16, ..PrecisionConfig::default() };
    let refused = Estimate::on_gpu(&t4, &given, &shapes, &wanted, |training| Work::new(training, 128, 1));
    let refused = refused.unwrap_err();
    assert_eq!(refused, "cannot compute in bf16");
    let deep = ModelConfig {
        encoder: crate::families::EncoderConfig { num_hidden_layers: 400, ..shapes.model.encoder.clone() },
        ..shapes.model.clone()
    };
    let refused = estimate_on("t4", &given, &masked_lm(&deep, 128), 1).unwrap_err();
    assert_eq!(refused, "does not fit, not even a row at a time");
}

#[test]
fn names_are_found_in_any_spelling_and_every_gpu_has_a_speed() {
    assert_eq!(Rentable::named("A100").unwrap().name, "a100-80");
    assert_eq!(Rentable::named("RTX 4090").unwrap().name, "rtx-4090");
    assert_eq!(Rentable::named("tpu"), None);
    let shapes = masked_lm(&named_model("tiny").unwrap(), 128);
    for gpu in Rentable::ALL.iter().filter(|gpu| gpu.is_served()) {
        assert!(estimate_on(gpu.name, &training(8, 1), &shapes, 1).is_ok(), "{}", gpu.name);
    }
}
