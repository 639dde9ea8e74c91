//! Evaluation batches, divided among the processes that train together.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use crate::tasks::Task;
use data::batches::Batch;
use model::distributed::World;
use ops::tensor::from_vec;

/// The outputs of a batch as they are sent between processes: number of the batch, shape, and the bits of the
/// values, since JSON cannot represent NaN and infinity.
type BatchOutput = (usize, (usize, usize), Vec<u32>);

/// Calls `each` with the number and the outputs, f32 `[M, outputs]` on the CPU, of every batch that has a
/// label, in order. Each process computes some of the batches and sends the outputs to the others, so all
/// processes see the same. Returns false if one of them was interrupted.
pub(super) fn for_each_output(
    world: World,
    task: &dyn Task,
    batches: impl IntoIterator<Item = Batch>,
    interrupted: &dyn Fn() -> bool,
    mut each: impl FnMut(usize, Tensor) -> Result<()>,
) -> Result<bool> {
    let mut own: Vec<BatchOutput> = Vec::new();
    let mut is_cut_off = false;
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
    let mut outputs: Vec<BatchOutput> = all.into_iter().flat_map(|(_, own)| own).collect();
    outputs.sort_unstable_by_key(|&(number, ..)| number);
    for (number, shape, bits) in outputs {
        each(number, from_vec(bits.into_iter().map(f32::from_bits).collect(), shape)?)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tasks::Supervised;
    use base::families::named_model;
    use model::distributed::threads::{in_each, worlds};
    use model::models::Model;

    /// The numbers and output bits of the batches that one process sees; `None` if it was interrupted.
    fn seen_outputs(
        world: World,
        batches: &[Batch],
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Vec<(usize, Vec<u32>)>> {
        let model = Model::classifier(&named_model("tiny").unwrap(), 3, 1, &Device::Cpu).unwrap();
        let mut seen = Vec::new();
        let batches = batches.iter().cloned();
        let is_complete =
            for_each_output(world, &Supervised { model }, batches, interrupted, |number, outputs| {
                let values = outputs.flatten_all()?.to_vec1::<f32>()?;
                seen.push((number, values.into_iter().map(f32::to_bits).collect()));
                Ok(())
            });
        is_complete.unwrap().then_some(seen)
    }

    #[test]
    fn all_processes_see_the_same_in_the_order_of_the_batches() {
        let mut batches: Vec<Batch> =
            (0..7).map(|number| Batch::of_segment((5..9 + number).collect(), vec![number % 3])).collect();
        batches[2] = Batch::of_segment(vec![5, 6], Vec::new());
        let alone = seen_outputs(World::ALONE, &batches, &|| false).unwrap();
        assert_eq!(alone.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6]);
        assert!(seen_outputs(World::ALONE, &batches, &|| true).is_none());
        let worlds = worlds(3, Duration::from_secs(60));
        let seen = in_each(&worlds, |world| seen_outputs(world, &batches, &|| false));
        assert!(seen.iter().all(|outputs| *outputs == Some(alone.clone())));
        let cut_off = in_each(&worlds, |world| seen_outputs(world, &batches, &|| world.rank == 2).is_none());
        assert_eq!(cut_off, [true; 3]);
    }
}
