//! Steps whose gradients of weights are bf16: the losses are those of f32 gradients, a resumed run has the
//! same bits, and several micro-batches or processes are refused.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};

use super::together::{batch, small};
use crate::machine::Machine;
use crate::tasks::Task;
use crate::tasks::masked_lm::MaskedLm;
use crate::train::run;
use crate::train::step::Stepper;
use config::{ComputeChoice, OptimizerType, PrecisionConfig, TrainingConfig, WeightGradients};
use model::models::Model;
use model::precision::{Hardware, Policy};
use ops::testing::bits;

const STEPS: u64 = 20;

fn machine(weight_gradients: WeightGradients) -> Machine {
    let precision =
        PrecisionConfig { compute: ComputeChoice::Bf16, weight_gradients, ..PrecisionConfig::default() };
    Machine::alone(&Device::Cpu, Policy::new(&precision, &Hardware::cpu()).unwrap())
}

fn task() -> MaskedLm {
    let model = Model::masked_lm(&small(), 1, &Device::Cpu).unwrap();
    MaskedLm { model }.computing_in(DType::BF16).unwrap()
}

fn stepper(task: &MaskedLm, optim: OptimizerType, weight_gradients: WeightGradients) -> Stepper {
    let config = TrainingConfig { optim, weight_decay: 0.01, ..TrainingConfig::default() };
    run::stepper(task.parameters(), &config, &machine(weight_gradients), 1).unwrap()
}

/// The losses and gradient norms of some steps on one batch.
fn trained(task: &MaskedLm, stepper: &mut Stepper, lr: f64, steps: std::ops::Range<u64>) -> Vec<[f64; 2]> {
    let outcomes = steps.map(|step| {
        let outcome = stepper.run(task, &[batch(0)], step, lr).unwrap();
        assert!(outcome.skipped.is_none());
        [outcome.loss(task.terms()).unwrap(), outcome.grad_norm]
    });
    outcomes.collect()
}

#[test]
fn losses_are_those_of_gradients_in_f32() {
    for (optim, lr) in [
        (OptimizerType::Adamw, 3e-3),
        (OptimizerType::Lamb, 2e-2),
        (OptimizerType::Lion, 1e-3),
        (OptimizerType::StableAdamw, 3e-3),
        (OptimizerType::Muon, 3e-3),
    ] {
        let [single, half] = [WeightGradients::F32, WeightGradients::Bf16].map(|weights| {
            let task = task();
            let mut stepper = stepper(&task, optim, weights);
            assert_eq!(stepper.gradients.places().is_some(), weights == WeightGradients::Bf16);
            trained(&task, &mut stepper, lr, 1..STEPS + 1)
        });
        assert!(single[0][0].to_bits() == half[0][0].to_bits(), "the first loss has seen no gradient");
        // One rounding to bf16 changes a value by up to 2^-9 of it, and the norm of all by far less.
        let norms = half[0][1] / single[0][1] - 1.0;
        assert!(norms.abs() < 1e-3, "{optim:?}: the norm differs by {norms}");
        let last = STEPS as usize - 1;
        assert!(half[last][0] < 0.9 * half[0][0], "{optim:?}: {half:?}");
        let apart = half.iter().zip(&single).map(|(half, single)| (half[0] - single[0]).abs());
        let apart = apart.sum::<f64>() / STEPS as f64;
        assert!(apart < 0.05, "{optim:?}: {apart} nat on average");
    }
}

#[test]
fn a_resumed_run_continues_with_the_same_bits() {
    let whole = task();
    let mut all_along = stepper(&whole, OptimizerType::Muon, WeightGradients::Bf16);
    trained(&whole, &mut all_along, 1e-3, 1..4);
    let saved: BTreeMap<String, Tensor> = all_along.optimizer.snapshot().unwrap().into_iter().collect();
    // Updates write into these tensors, so they must be copies, as those read from a file are.
    let saved = saved.iter().map(|(name, tensor)| (name.clone(), tensor.copy().unwrap())).collect();
    let cut = task();
    cut.parameters().set_all(&whole.parameters().flat().copy().unwrap()).unwrap();
    let mut resumed = stepper(&cut, OptimizerType::Muon, WeightGradients::Bf16);
    resumed.optimizer.restore(&saved).unwrap();
    let wanted = trained(&whole, &mut all_along, 1e-3, 4..7);
    let found = trained(&cut, &mut resumed, 1e-3, 4..7);
    assert_eq!(found, wanted);
    assert!(bits(cut.parameters().flat()) == bits(whole.parameters().flat()));
}

#[test]
fn micro_batches_are_not_added_up_in_bf16() {
    let task = task();
    let mut stepper = stepper(&task, OptimizerType::Adamw, WeightGradients::Bf16);
    let error = stepper.run(&task, &[batch(0), batch(1)], 1, 1e-3).unwrap_err();
    assert!(format!("{error:#}").contains("several micro-batches are added up in f32"), "{error:#}");
}
