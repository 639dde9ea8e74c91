//! Threads in the place of processes take the steps that one takes.

use std::time::Duration;

use candle_core::Device;

use super::Parabola;
use super::policy;
use crate::batches::Batch;
use crate::batches::share;
use crate::config::ComputeType;
use crate::config::TrainingConfig;
use crate::distributed::World;
use crate::distributed::threads::in_each;
use crate::distributed::threads::worlds;
use crate::families::named_model;
use crate::machine::Machine;
use crate::models::Model;
use crate::tasks::Task;
use crate::tasks::masked_lm::MaskedLm;
use crate::train::run;
use crate::train::step::Skip;
use crate::train::step::StepOutcome;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Three steps of `micro`, as far as they are those of this process; what they gave, and the parameters.
fn trained(task: &dyn Task, micro: &[Batch], world: World) -> (Vec<StepOutcome>, Vec<u32>) {
    let machine = Machine { world, ..Machine::alone(&Device::Cpu, policy(ComputeType::F32)) };
    let mut stepper = run::stepper(task.parameters(), &TrainingConfig::default(), &machine, 1).unwrap();
    let own = &micro[share(micro.len(), world.rank, world.size)];
    let mut step = |step| stepper.run_beside(task, (own, micro.len()), step, 1e-2, || ()).unwrap();
    let outcomes = (1..4).map(&mut step).collect();
    let values = task.parameters().flat().to_vec1::<f32>().unwrap();
    (outcomes, values.into_iter().map(f32::to_bits).collect())
}

#[test]
fn a_step_has_the_same_bits_for_any_number_of_processes() {
    let batch = |number: u32| {
        let ids = (5 + number..40 + 3 * number).collect();
        Batch::of_segment(ids, vec![2 + number, 9, 30])
    };
    let micro: Vec<Batch> = (0..8).map(batch).collect();
    let of = |world| {
        let model = Model::masked_lm(&named_model("tiny").unwrap(), 1, &Device::Cpu).unwrap();
        let (outcomes, parameters) = trained(&MaskedLm { model }, &micro, world);
        let told = |o: &StepOutcome| (o.losses.clone(), o.grad_norm.to_bits(), o.tokens, o.flops.to_bits());
        (outcomes.iter().map(told).collect::<Vec<_>>(), parameters)
    };
    let alone = of(World::ALONE);
    for size in [2, 4, 8] {
        let same = in_each(&worlds(size, TIMEOUT), |world| of(world) == alone);
        assert_eq!(same, vec![true; size]);
    }
    // Three leaves have another order, and it can be told.
    let three = in_each(&worlds(3, TIMEOUT), of);
    assert!(three.iter().all(|one| *one == three[0]) && three[0].1 != alone.1);
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
