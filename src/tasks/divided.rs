//! The batches of an evaluation, divided among the processes that train together.

use anyhow::Result;
use candle_core::DType;
use candle_core::Device;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::distributed::World;
use crate::ops::tensor::from_vec;
use crate::tasks::Task;

/// The outputs of a batch between processes: its number, their shape, and their bits, since JSON has no word for
/// what is not finite.
type Told = (usize, (usize, usize), Vec<u32>);

/// Gives `each` the number and the outputs, f32 `[M, outputs]` on the CPU, of every batch that has a label, in their
/// order. Each process computes some of them and tells the others, so that all see the same. `false` where one of
/// them was interrupted between two.
pub(super) fn for_each_output(
    world: World,
    task: &dyn Task,
    batches: impl IntoIterator<Item = Batch>,
    interrupted: &dyn Fn() -> bool,
    mut each: impl FnMut(usize, Tensor) -> Result<()>,
) -> Result<bool> {
    let (mut own, mut is_cut_off) = (Vec::<Told>::new(), false);
    for (number, batch) in batches.into_iter().enumerate() {
        if number % world.size != world.rank || batch.num_labels() == 0 {
            continue;
        }
        is_cut_off = interrupted();
        if is_cut_off {
            break;
        }
        let outputs = task.logits(&batch)?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        if world.is_shared() {
            let values = outputs.flatten_all()?.to_vec1::<f32>()?;
            own.push((number, outputs.dims2()?, values.into_iter().map(f32::to_bits).collect()));
        } else {
            each(number, outputs)?;
        }
    }
    if !world.is_shared() {
        return Ok(!is_cut_off);
    }
    let all = world.gather(&(is_cut_off, own))?;
    if all.iter().any(|(is_cut_off, _)| *is_cut_off) {
        return Ok(false);
    }
    let mut told: Vec<Told> = all.into_iter().flat_map(|(_, own)| own).collect();
    told.sort_unstable_by_key(|&(number, ..)| number);
    for (number, shape, bits) in told {
        each(number, from_vec(bits.into_iter().map(f32::from_bits).collect(), shape)?)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::distributed::threads::in_each;
    use crate::distributed::threads::worlds;
    use crate::families::named_model;
    use crate::models::Model;
    use crate::tasks::classify::Classify;

    fn told(
        world: World,
        batches: &[Batch],
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Vec<(usize, Vec<u32>)>> {
        let model = Model::classifier(&named_model("tiny").unwrap(), 3, 1, &Device::Cpu).unwrap();
        let mut told = Vec::new();
        let each = |number, outputs: Tensor| {
            let values = outputs.flatten_all()?.to_vec1::<f32>()?;
            told.push((number, values.into_iter().map(f32::to_bits).collect()));
            Ok(())
        };
        let batches = batches.iter().cloned();
        for_each_output(world, &Classify { model }, batches, interrupted, each).unwrap().then_some(told)
    }

    #[test]
    fn all_processes_see_the_same_in_the_order_of_the_batches() {
        let batch = |number: u32| Batch::of_segment((5..9 + number).collect(), vec![number % 3]);
        let mut batches: Vec<Batch> = (0..7).map(batch).collect();
        batches[2] = Batch::of_segment(vec![5, 6], Vec::new());
        let alone = told(World::ALONE, &batches, &|| false).unwrap();
        assert_eq!(alone.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6]);
        assert!(told(World::ALONE, &batches, &|| true).is_none());
        let worlds = worlds(3, Duration::from_secs(60));
        assert!(
            in_each(&worlds, |world| told(world, &batches, &|| false) == Some(alone.clone())) == [true; 3]
        );
        let cut_off = in_each(&worlds, |world| told(world, &batches, &|| world.rank == 2).is_none());
        assert_eq!(cut_off, [true; 3]);
    }
}
