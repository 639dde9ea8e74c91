//! Steps of several threads, each in the role of a process, give the results of one process.

use std::collections::BTreeMap;
use std::time::Duration;

use candle_core::{DType, Device, Tensor};

use super::{Parabola, policy};
use crate::machine::Machine;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::{Loss, Task};
use crate::train::run;
use crate::train::step::{Share, Skip, StepOutcome, Stepper};
use base::families::{EncoderConfig, Family, ModelConfig, named_model};
use config::{ComputeType, DistributedConfig, OptimizerType, TrainingConfig, Wire};
use data::batches::{Batch, share};
use model::distributed::World;
use model::distributed::threads::{in_each, worlds, worlds_of, worlds_on_gpus};
use model::models::Model;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A model of 107,000 parameters.
pub(super) fn small() -> ModelConfig {
    let encoder = EncoderConfig {
        vocab_size: 512,
        hidden_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 128,
        max_position_embeddings: 66,
        ..EncoderConfig::of(Family::ROBERTA)
    };
    ModelConfig { family: Family::ROBERTA, encoder }
}

/// Three steps with this process's share of `micro`; returns their outcomes, and the parameters.
fn trained(task: &dyn Task, micro: &[Batch], world: World) -> (Vec<StepOutcome>, Vec<u32>) {
    let machine = Machine { world, ..Machine::alone(&Device::Cpu, policy(ComputeType::F32)) };
    let mut stepper = run::stepper(task.parameters(), &TrainingConfig::default(), &machine, 1).unwrap();
    let outcomes = stepped(&mut stepper, task, micro, world);
    (outcomes, bits(task.parameters().flat()))
}

fn bits(values: &Tensor) -> Vec<u32> {
    values.to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn stepped(stepper: &mut Stepper, task: &dyn Task, micro: &[Batch], world: World) -> Vec<StepOutcome> {
    let own = &micro[share(micro.len(), world.rank, world.size)];
    let mut outcomes = Vec::new();
    for step in 1..4 {
        // What interrupts is not asked: the other processes wait for these gradients.
        let share = Share { micro: own, micro_batches: micro.len(), is_interrupted: &|| world.is_shared() };
        outcomes.push(stepper.run_share(task, share, step, 1e-2, || ()).unwrap().expect("a whole step"));
    }
    outcomes
}

/// Losses, bits of the gradient norm, tokens, and bits of the FLOPs of a step.
type StepBits = (Vec<Loss>, u64, usize, u64);

/// Three steps of a small masked language model, and the bits of its parameters.
fn trained_masked_lm(micro: &[Batch], world: World) -> (Vec<StepBits>, Vec<u32>) {
    let model = Model::masked_lm(&small(), 1, &Device::Cpu).unwrap();
    let (outcomes, parameters) = trained(&MaskedLm { model }, micro, world);
    let steps = outcomes.into_iter().map(|o| (o.losses, o.grad_norm.to_bits(), o.tokens, o.flops.to_bits()));
    (steps.collect(), parameters)
}

/// One micro-batch of a segment of 35 tokens.
pub(super) fn batch(number: u32) -> Batch {
    Batch::of_segment((5 + number..40 + number).collect(), vec![2 + number, 9])
}

/// The bits of the optimizer's state in the checkpoint of rank 0.
fn state(saved: Option<&Saved>) -> Vec<(&String, Vec<u32>)> {
    let saved = saved.expect("the first one has it").iter();
    saved.filter(|(name, _)| *name != "updates").map(|(name, tensor)| (name, bits(tensor))).collect()
}

/// The optimizer state of a checkpoint.
type Saved = BTreeMap<String, Tensor>;

/// Processes with sharded optimizer state produce the same bits as one process with all of it: parameters,
/// their copy in a half type, and the checkpoint; and they resume from it with the same bits.
#[test]
fn a_sharded_optimizer_leaves_the_same_bits_and_the_same_checkpoint() {
    let micro: Vec<Batch> = (0..4).map(batch).collect();
    let trained = |world: World, config: &TrainingConfig, from: Option<&Saved>| {
        let machine = Machine { world, ..Machine::alone(&Device::Cpu, policy(ComputeType::Bf16)) };
        // One rule with more parameters than are exchanged at once; the others with few.
        let shape = if config.optim == OptimizerType::Adamw { named_model("tiny").unwrap() } else { small() };
        let model = Model::masked_lm(&shape, 1, &Device::Cpu).unwrap();
        let task = MaskedLm { model }.computing_in(DType::BF16).unwrap();
        let mut stepper = run::stepper(task.parameters(), config, &machine, 1).unwrap();
        if let Some(saved) = from {
            // Updates write into these tensors, so they must be copies, as those read from a file are.
            let saved = saved.iter().map(|(name, tensor)| (name.clone(), tensor.copy().unwrap()));
            stepper.optimizer.restore(&saved.collect()).unwrap();
        }
        stepped(&mut stepper, &task, &micro, world);
        stepper.optimizer.gather().unwrap();
        let saved = stepper.optimizer.snapshot().map(|saved| saved.into_iter().collect::<Saved>());
        assert_eq!(saved.is_ok(), world.is_first(), "the others have parts");
        stepper.optimizer.let_go();
        let shadow = task.parameters().shadow().unwrap().to_dtype(DType::F32).unwrap();
        ([bits(task.parameters().flat()), bits(&shadow)], saved.ok())
    };
    let sharded = DistributedConfig { shard_optimizer: true, ..DistributedConfig::default() };
    for optim in [
        OptimizerType::Adamw,
        OptimizerType::Lamb,
        OptimizerType::Lion,
        OptimizerType::StableAdamw,
        OptimizerType::Muon,
    ] {
        let config = TrainingConfig { optim, weight_decay: 0.1, ..TrainingConfig::default() };
        let begun = trained(World::ALONE, &config, None);
        let resumed = trained(World::ALONE, &config, begun.1.as_ref());
        assert!(resumed.0 != begun.0, "the state counts");
        for (size, from, alone) in [(2, None, &begun), (4, None, &begun), (2, begun.1.as_ref(), &resumed)] {
            let worlds = worlds_of(size, TIMEOUT, &sharded);
            let all = in_each(&worlds, |world| trained(world, &config, from));
            assert!(all.iter().all(|one| one.0 == alone.0), "{optim:?}: {size}");
            assert!(
                state(all[0].1.as_ref()) == state(alone.1.as_ref()),
                "{optim:?}: the checkpoint of {size}"
            );
        }
    }
}

#[test]
fn a_step_has_the_same_bits_for_any_number_of_processes() {
    let micro: Vec<Batch> = (0..8)
        .map(|number| {
            let ids = (5 + number..40 + 3 * number).collect();
            Batch::of_segment(ids, vec![2 + number, 9, 30])
        })
        .collect();
    let alone = trained_masked_lm(&micro, World::ALONE);
    for size in [2, 4, 8] {
        let same = in_each(&worlds(size, TIMEOUT), |world| trained_masked_lm(&micro, world) == alone);
        assert_eq!(same, vec![true; size]);
    }
    // Three leaves are summed in another order, which shows in the bits.
    let three = in_each(&worlds(3, TIMEOUT), |world| trained_masked_lm(&micro, world));
    assert!(three.iter().all(|one| *one == three[0]) && three[0].1 != alone.1);
}

/// The stand-in for NCCL adds up two gradients in the order of the tree.
#[test]
fn steps_of_two_that_add_up_where_gradients_lie_have_the_bits_of_one() {
    let micro: Vec<Batch> = (0..4).map(batch).collect();
    let alone = trained_masked_lm(&micro, World::ALONE).1;
    for (overlap, shard_optimizer) in [(false, false), (true, false), (true, true)] {
        let config = DistributedConfig { overlap, shard_optimizer, ..DistributedConfig::default() };
        let worlds = worlds_on_gpus(2, TIMEOUT, &config);
        let same = in_each(&worlds, |world| trained_masked_lm(&micro, world).1 == alone);
        assert_eq!(same, [true; 2], "overlap {overlap}, shard_optimizer {shard_optimizer}");
    }
    let bf16 = DistributedConfig { wire: Wire::Bf16, ..DistributedConfig::default() };
    let on_cpus = in_each(&worlds_of(2, TIMEOUT, &bf16), |world| trained_masked_lm(&micro, world).1);
    assert!(on_cpus[0] != alone, "it is another sum");
    let on_gpus = in_each(&worlds_on_gpus(2, TIMEOUT, &bf16), |world| trained_masked_lm(&micro, world).1);
    assert!(on_gpus == on_cpus);
}

#[test]
fn a_loss_that_is_not_finite_in_one_process_is_a_skip_in_all() {
    let micro: Vec<Batch> = (0..4).map(|id| Batch { sample_ids: vec![id], ..Batch::default() }).collect();
    let skipped = in_each(&worlds(4, TIMEOUT), |world| {
        let task = Parabola { planted: vec![(2..3, f64::NAN)], ..Parabola::new() };
        let before = task.parameters().flat().to_vec1::<f32>().unwrap();
        let (outcomes, _) = trained(&task, &micro, world);
        assert_eq!(task.parameters().flat().to_vec1::<f32>().unwrap(), before);
        outcomes.iter().all(|outcome| matches!(outcome.skipped, Some(Skip::NotFinite("loss", _))))
    });
    assert_eq!(skipped, [true; 4]);
}
