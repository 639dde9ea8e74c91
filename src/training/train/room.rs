//! Checks before the first step whether a run fits this machine: a process that runs out of memory ends
//! without a message, and a full disk shows only after many checkpoints.

use anyhow::Result;

use crate::machine::Machine;
use crate::tasks::run::Shapes;
use crate::telemetry::Progress;
use crate::train::auto_batch_size;
use base::error::Problem;
use base::fs;
use base::quantity::format_bytes;
use config::TrainingConfig;
use model::distributed::{World, leaves};
use model::models::memory::SAVING_ROOM;

/// Returns an error for a run on the CPU if less than half of the memory it needs is free, and warns if less
/// than all of it is; `tokens` is the largest number of tokens in a micro-batch. The limit of a control group
/// counts; if the free memory is unknown, nothing is checked.
pub(super) fn require_memory(
    tokens: usize,
    training: &TrainingConfig,
    shapes: &Shapes,
    machine: &Machine,
    progress: &Progress,
) -> Result<()> {
    // For a GPU, `auto_batch_size::reserve` reports a shortage when it reserves memory.
    let Some(free) = machine.device.is_cpu().then(fs::available_bytes).flatten() else { return Ok(()) };
    let needed = shapes.prediction(tokens as u64, training, machine.place()).total();
    if let Some(warning) = memory_shortage(needed, free, &auto_batch_size::less_memory(training))? {
        progress.warn(&warning);
    }
    Ok(())
}

fn memory_shortage(needed: u64, free: u64, hint: &str) -> Result<Option<String>, Problem> {
    let shortage = format!(
        "a step takes about {} of memory at its peak, {} are free",
        format_bytes(needed),
        format_bytes(free)
    );
    // The prediction is within a quarter of the measured memory, and not all that it counts is used at once.
    if needed / 2 > free {
        return Err(Problem::usage(shortage).at("training.per_device_train_batch_size").hint(hint));
    }
    Ok((needed > free).then(|| format!("{shortage}: the system may end this process; {hint}")))
}

/// Returns true if memory has room for a copy of `bytes` bytes during training, or if the free memory is unknown.
pub(super) fn has_room_for(bytes: u64) -> bool {
    fs::available_bytes().is_none_or(|free| free / SAVING_ROOM >= bytes)
}

/// Returns an error if some process would have no micro-batch; prints a note if the number of processes
/// changes the order of sums and so the last bits.
pub(super) fn require_work(training: &TrainingConfig, world: World, progress: &Progress) -> Result<()> {
    let micro_batches = training.gradient_accumulation_steps;
    let size = world.size;
    if micro_batches < size {
        let message = format!("is {micro_batches}, and {size} processes have a micro-batch each at least");
        return Err(Problem::usage(message)
            .at("training.gradient_accumulation_steps")
            .hint("make it larger, with fewer rows in a micro-batch for the same update, or start fewer processes")
            .into());
    }
    if !leaves(micro_batches).is_multiple_of(size) {
        progress.note(&format!(
            "note: {size} processes add up gradients in an order of their own, so that the last bits are not \
             those of one process: take 2, 4 or 8 that divide `training.gradient_accumulation_steps`"
        ));
    }
    Ok(())
}

/// Upper bound on the bytes of all checkpoints of a run at one time, each of `checkpoint` bytes: the newest
/// ones, the best, the one being written, and for an uploaded run (`run.upload_to`) a deleted one whose
/// upload is not finished. `total_steps` is given if it is known.
pub fn most_checkpoint_bytes(
    checkpoint: u64,
    training: &TrainingConfig,
    total_steps: Option<u64>,
    is_uploaded: bool,
) -> u64 {
    // The last step is saved as well.
    let saves = match (training.save_steps, total_steps) {
        (0, _) => 1,
        (every, Some(steps)) => (steps / every).saturating_add(1),
        (_, None) => u64::MAX,
    };
    let passing = 1 + u64::from(is_uploaded);
    let most = (training.save_total_limit as u64).saturating_add(1 + passing).min(saves);
    let by_number = most.saturating_mul(checkpoint);
    match training.save_total_bytes {
        Some(bytes) => {
            let kept = bytes.max(bytes_always_kept(checkpoint, training));
            by_number.min(kept.saturating_add(passing.saturating_mul(checkpoint)))
        }
        None => by_number,
    }
}

/// Bytes of the checkpoints that `save_total_bytes` never deletes: the newest, the best, and, if more than
/// one may stay, the newest that was due.
pub fn bytes_always_kept(checkpoint: u64, training: &TrainingConfig) -> u64 {
    checkpoint.saturating_mul(training.save_total_limit.clamp(1, 2) as u64 + 1)
}

/// Returns a warning for a disk that contains `there` bytes of this run's checkpoints, has `free` bytes left,
/// and will need `wanted` in all; `None` if all will fit.
pub(super) fn disk_shortage(wanted: u64, there: u64, free: u64) -> Option<String> {
    let [all, more, left] = [wanted, wanted.saturating_sub(there), free].map(format_bytes);
    (wanted.saturating_sub(there) > free).then(|| {
        format!(
            "checkpoints and results of this run will take up to {all}, {more} more than now, and {left} are free: \
             free some room before it is full, or lower `training.save_total_limit` or `training.save_total_bytes`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_fit_is_reported_and_one_of_twice_the_memory_refused() {
        assert_eq!(memory_shortage(100 << 20, 100 << 20, "take fewer rows").unwrap(), None);
        let warning =
            memory_shortage(3 << 30, 2 << 30, "take fewer rows").unwrap().expect("too little is free");
        assert!(
            warning.starts_with("a step takes about 3GiB of memory at its peak, 2GiB are free: the system"),
            "{warning}"
        );
        assert!(warning.ends_with("take fewer rows"), "{warning}");
        let refused = memory_shortage(5 << 30, 2 << 30, "take fewer rows").unwrap_err().to_string();
        assert!(refused.contains("5GiB") && refused.contains("take fewer rows"), "{refused}");
    }

    #[test]
    fn the_disk_is_that_of_the_number_or_of_the_bytes_whichever_is_less() {
        assert_eq!(most(10, None, None), 120);
        assert_eq!(most(10, None, Some(350)), 40, "three that are due and the last one");
        assert_eq!(most(10, Some(50), None), 60);
        assert_eq!(most(2, Some(500), None), 40);
        assert_eq!(most(10, Some(10), None), 40);
        assert_eq!(most(usize::MAX, None, None), u64::MAX);
        assert_eq!(most(1, Some(10), None), 30, "the newest, the best, and the one that is written");
        let only_the_last = TrainingConfig { save_steps: 0, ..training(10, None) };
        assert_eq!(most_checkpoint_bytes(10, &only_the_last, None, false), 10);
        for (bytes, total_steps, expected, why) in [
            (None, None, 50, "as many, and one on its way into the bucket"),
            (Some(30), None, 50, "the limit of bytes"),
            (None, Some(350), 40, "no more than are saved"),
        ] {
            let most = most_checkpoint_bytes(10, &training(2, bytes), total_steps, true);
            assert_eq!(most, expected, "{why}");
        }
        assert_eq!(most_checkpoint_bytes(10, &only_the_last, None, true), 10);
    }

    /// Training that saves every 100 steps.
    fn training(save_total_limit: usize, save_total_bytes: Option<u64>) -> TrainingConfig {
        TrainingConfig { save_total_limit, save_total_bytes, save_steps: 100, ..TrainingConfig::default() }
    }

    /// Most bytes of the checkpoints of 10 bytes each.
    fn most(save_total_limit: usize, save_total_bytes: Option<u64>, total_steps: Option<u64>) -> u64 {
        most_checkpoint_bytes(10, &training(save_total_limit, save_total_bytes), total_steps, false)
    }

    #[test]
    fn existing_checkpoints_need_no_more_space() {
        assert_eq!(disk_shortage(100, 0, 100), None);
        assert_eq!(disk_shortage(100, 60, 40), None);
        let warning = disk_shortage(100 << 20, 60 << 20, 30 << 20).expect("ten are missing");
        assert!(warning.contains("up to 100MiB, 40MiB more than now, and 30MiB are free"), "{warning}");
    }
}
