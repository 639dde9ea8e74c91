//! What a run would take of memory and disk, as `--dry-run` tells it.

use crate::batches::BatchPlan;
use crate::config::RunSection;
use crate::config::TrainingConfig;
use crate::machine::Machine;
use crate::models::memory::PROCESS_BYTES;
use crate::models::memory::Prediction;
use crate::quantity::format_bytes;
use crate::tasks::run::Shapes;
use crate::train::room;

/// What a checkpoint takes, and all of them at most.
pub(super) fn disk(checkpoint: u64, training: &TrainingConfig, run: &RunSection) -> String {
    let total_steps = u64::try_from(training.max_steps).ok();
    let most = room::most_checkpoint_bytes(checkpoint, training, total_steps, run.upload_to.is_some());
    let [one, most] = [checkpoint, most].map(format_bytes);
    let text = format!("{one} a checkpoint, {most} at most");
    match training.save_total_bytes {
        Some(bytes) if bytes < room::bytes_always_kept(checkpoint, training) => {
            let bytes = format_bytes(bytes);
            format!("{text}; `training.save_total_bytes` {bytes} is less than those take that always stay")
        }
        _ => text,
    }
}

/// The peak of the largest step of all phases.
pub(super) fn memory(
    training: &TrainingConfig,
    max_seq_length: usize,
    machine: &Machine,
    shapes: &Shapes,
) -> String {
    let plan = BatchPlan::new(training, max_seq_length);
    let prediction = shapes.prediction(plan.most_tokens_at_once() as u64, training, machine.place());
    let Prediction { state_bytes, activation_bytes, temporary_bytes, evaluation_bytes, .. } = prediction;
    let [total, state, other] =
        [prediction.total(), state_bytes, temporary_bytes + PROCESS_BYTES].map(format_bytes);
    let of_state = format!("{total} at the peak: {state} of values, gradients and moments");
    if evaluation_bytes > prediction.step_bytes() {
        let [evaluation, other] = [evaluation_bytes, PROCESS_BYTES].map(format_bytes);
        return format!(
            "{of_state}, {evaluation} of evaluation (`training.per_device_eval_batch_size` {}), {other} other",
            training.per_device_eval_batch_size
        );
    }
    format!("{of_state}, {} of activations, {other} other", format_bytes(activation_bytes))
}

/// What training may cost and until when it may take.
pub(super) fn limits(run: &RunSection) -> Option<String> {
    let money = run.budget_usd.map(|usd| format!("${usd}"));
    let day = run.deadline.as_ref().map(|deadline| format!("until {deadline}"));
    let told: Vec<String> = money.into_iter().chain(day).collect();
    (!told.is_empty()).then(|| told.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_that_of_the_number_or_of_the_bytes_whichever_is_less() {
        let of = |save_total_limit, save_total_bytes, run: &RunSection| {
            let training = TrainingConfig { save_total_limit, save_total_bytes, ..TrainingConfig::default() };
            disk(1 << 20, &training, run)
        };
        let disk = |number, bytes| of(number, bytes, &RunSection::default());
        assert_eq!(disk(10, None), "1MiB a checkpoint, 12MiB at most");
        assert_eq!(disk(10, Some(5 << 20)), "1MiB a checkpoint, 6MiB at most");
        assert_eq!(disk(2, Some(50 << 20)), "1MiB a checkpoint, 4MiB at most");
        let little = disk(10, Some(1 << 20));
        assert!(
            little.starts_with("1MiB a checkpoint, 4MiB at most; `training.save_total_bytes`"),
            "{little}"
        );
        assert!(disk(usize::MAX, None).ends_with("at most"));
        let uploaded = RunSection { upload_to: Some("s3://bucket/run".to_string()), ..RunSection::default() };
        assert_eq!(of(10, None, &uploaded), "1MiB a checkpoint, 13MiB at most");
    }
}
