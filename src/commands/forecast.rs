//! The prediction of memory and disk for `--dry-run`, as text.

use std::time::SystemTime;

use anyhow::Result;

use crate::batches::BatchPlan;
use crate::commands::{bench, terminal};
use crate::config::{FinetuneConfig, PrecisionConfig, RunSection, TrainingConfig};
use crate::estimate::{Estimate, PRICES_AS_OF, Part, Rentable, Work};
use crate::machine::Machine;
use crate::models::memory::{PROCESS_BYTES, Prediction};
use crate::quantity::{format_amount, format_bytes, format_span};
use crate::tasks::planned::Planned;
use crate::tasks::run::{Shapes, total_steps};
use crate::telemetry::{Progress, Unit};
use crate::train::{auto_batch_size, horizon, room};

/// The bytes of a checkpoint, and the largest number of bytes of all checkpoints together.
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

/// The peak of memory in the largest step of all phases, or in an evaluation if that needs more.
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
    let state = format!("{total} at the peak: {state} of {}", state_parts(training));
    if evaluation_bytes > prediction.step_bytes() {
        let [evaluation, other] = [evaluation_bytes, PROCESS_BYTES].map(format_bytes);
        return format!(
            "{state}, {evaluation} of evaluation (`training.per_device_eval_batch_size` {}), {other} other",
            training.per_device_eval_batch_size
        );
    }
    format!("{state}, {} of activations, {other} other", format_bytes(activation_bytes))
}

/// The values of each parameter that are in memory during the whole run.
pub(super) fn state_parts(training: &TrainingConfig) -> &'static str {
    match training.weight_average {
        None => "values, gradients and moments",
        Some(_) => "values, their average, gradients and moments",
    }
}

/// The most memory of `runs` runs that are trained at the same time.
pub(super) fn memory_of_runs(
    runs: usize,
    training: &TrainingConfig,
    max_seq_length: usize,
    machine: &Machine,
    shapes: &Shapes,
) -> String {
    let tokens = BatchPlan::new(training, max_seq_length).most_tokens_at_once() as u64;
    let each = shapes.prediction(tokens, training, machine.place()).total();
    format!("{} for {runs} runs at once", format_bytes(each.saturating_mul(runs as u64)))
}

/// The most bytes of the checkpoints and final models, of `model` bytes, of `runs` runs.
pub(super) fn disk_of_runs(
    runs: usize,
    checkpoint: u64,
    model: u64,
    training: &TrainingConfig,
    run: &RunSection,
) -> String {
    let total_steps = u64::try_from(training.max_steps).ok();
    let most = room::most_checkpoint_bytes(checkpoint, training, total_steps, run.upload_to.is_some());
    let most = most.saturating_add(model).saturating_mul(runs as u64);
    format!("{} at most for all {runs} runs", format_bytes(most))
}

/// Names of the GPUs for which a dry run of fine-tuning predicts time and cost.
const RENTED: [&str; 3] = ["h100", "l4", "t4"];

/// Fine-tuning runs of one configuration from models of one shape.
pub(super) struct Runs {
    pub(super) training: TrainingConfig,
    pub(super) shapes: Shapes,
    /// Examples of an epoch. No update has more.
    examples: usize,
    /// Updates of each run.
    pub(super) steps: u64,
    /// Mean number of tokens of a row.
    pub(super) mean_length: usize,
    /// Number of runs.
    pub(super) count: usize,
}

impl Runs {
    /// `count` runs on the examples that were read.
    pub(super) fn new(training: TrainingConfig, shapes: Shapes, read: &Planned, count: usize) -> Self {
        let update = training.rows_per_update().max(1);
        let steps = total_steps(&training, read.rows.next_multiple_of(update) as u64);
        let mean_length = (read.tokens as usize).div_ceil(read.rows.max(1)).max(1);
        Self { training, shapes, examples: read.rows.max(1), steps, mean_length, count }
    }

    /// Micro-batches of all runs with this training configuration.
    pub(super) fn work(&self, training: &TrainingConfig) -> Part {
        let [rows, of_update] =
            [training.rows_at_once(), training.rows_per_update()].map(|rows| rows.min(self.examples));
        let updates = self.steps * self.count as u64;
        let micro_batches = updates * of_update.div_ceil(rows.max(1)) as u64;
        Part { rows, length: self.mean_length, is_causal: false, micro_batches, updates }
    }

    /// Tokens of all runs.
    fn tokens(&self) -> u64 {
        let part = self.work(&self.training);
        part.micro_batches * part.tokens_at_once()
    }
}

/// The lines on the time and the cost of fine-tuning runs: on this machine measured, on rented GPUs predicted.
/// Each has a name, which is empty if the line continues the one before it.
///
/// # Errors
/// Returns an error if the speed of this machine cannot be measured.
pub(super) fn time_and_cost(
    work: &[Runs],
    config: &FinetuneConfig,
    machine: &Machine,
) -> Result<Vec<(&'static str, String)>> {
    let mut lines = vec![("here", here(work, config, machine)?)];
    let rented = rented(work).into_iter().enumerate();
    lines.extend(rented.map(|(index, text)| (if index == 0 { "on a rented GPU" } else { "" }, text)));
    let which = match work.iter().map(|runs| runs.count).sum() {
        1 => "one run".to_string(),
        count => format!("all {count} runs, one after the other"),
    };
    lines.push((
        "",
        format!(
            "for the training of {which}: measured here, predicted for GPUs at round prices of \
             {PRICES_AS_OF}; evaluations come on top"
        ),
    ));
    Ok(lines)
}

/// The time of fine-tuning runs on this machine, and their cost if `run.usd_per_hour` says its price. Of the
/// runs of one model those with the most tokens are measured, and the others are assumed to take as long for
/// each token.
fn here(work: &[Runs], config: &FinetuneConfig, machine: &Machine) -> Result<String> {
    let mut largest: Vec<&Runs> = Vec::new();
    for runs in work {
        match largest.iter_mut().find(|known| known.shapes.model == runs.shapes.model) {
            Some(known) if known.tokens() < runs.tokens() => *known = runs,
            Some(_) => {}
            None => largest.push(runs),
        }
    }
    let progress = Progress::detect(terminal::is_quiet());
    let measuring = progress.stage("measuring steps", Unit::Items, Some(largest.len() as u64));
    let compute = machine.policy.compute_type();
    let mut seconds = 0.0;
    for runs in largest {
        let Runs { training, shapes, .. } = runs;
        let part = runs.work(training);
        let bytes = auto_batch_size::predicted_bytes(part.rows, training, shapes, machine.place());
        if auto_batch_size::room(machine).is_some_and(|room| bytes > room) {
            return Ok("does not fit into the free memory".to_string());
        }
        let shape = bench::BatchShape { rows: part.rows, length: part.length, is_causal: false };
        let step = bench::fine_tuning_step_seconds(&shapes.model, training, shape, compute, config)?;
        let Some(step) = step else { return Ok("a step ran out of memory".to_string()) };
        let tokens: u64 =
            work.iter().filter(|other| other.shapes.model == shapes.model).map(Runs::tokens).sum();
        seconds += step * tokens as f64 / part.tokens_at_once() as f64;
        measuring.advance(1);
    }
    measuring.finish("done");
    let cost = config.run.usd_per_hour.map(|usd| format!(", ${}", format_amount(seconds / 3600.0 * usd)));
    Ok(format!("{}, {}{}", compute.name(), format_span(seconds), cost.unwrap_or_default()))
}

/// The time and the cost of fine-tuning runs on rented GPUs, each in its best number type: a line a GPU.
fn rented(work: &[Runs]) -> Vec<String> {
    let mut lines = Vec::new();
    for gpu in RENTED.into_iter().filter_map(Rentable::named) {
        let text = match time_on(&gpu, work) {
            Ok((compute, seconds)) => {
                let usd = format_amount(seconds / 3600.0 * gpu.usd_per_hour);
                format!("{compute}, {}, ${usd}", format_span(seconds))
            }
            Err(problem) => problem,
        };
        lines.push(format!("{}: {text}", gpu.name));
    }
    lines
}

/// The number type and the seconds of all runs on a GPU; the error is the reason why one is not possible.
fn time_on(gpu: &Rentable, work: &[Runs]) -> Result<(&'static str, f64), String> {
    let mut compute = "";
    let mut seconds = 0.0;
    for runs in work {
        let estimate =
            Estimate::on_gpu(gpu, &runs.training, &runs.shapes, &PrecisionConfig::default(), |training| {
                Work { parts: vec![runs.work(training)] }
            })?;
        compute = estimate.compute.as_str();
        seconds += estimate.seconds;
    }
    Ok((compute, seconds))
}

/// The limits on the cost and the end of training, if there are any.
///
/// # Errors
/// Returns an error if the deadline has passed, as a run would.
pub(super) fn limits(run: &RunSection) -> Result<Option<String>> {
    horizon::limit_seconds(run, 0.0, SystemTime::now())?;
    let money = run.budget_usd.map(|usd| format!("${usd}"));
    let day = run.deadline.as_ref().map(|deadline| format!("until {deadline}"));
    let limits: Vec<String> = money.into_iter().chain(day).collect();
    Ok((!limits.is_empty()).then(|| limits.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_limited_by_number_or_bytes_whichever_is_less() {
        let run = RunSection::default();
        for (number, bytes, expected) in [
            (10, None, "1MiB a checkpoint, 12MiB at most"),
            (10, Some(5 << 20), "1MiB a checkpoint, 6MiB at most"),
            (2, Some(50 << 20), "1MiB a checkpoint, 4MiB at most"),
        ] {
            assert_eq!(disk_of_mebibyte(number, bytes, &run), expected);
        }
        let little = disk_of_mebibyte(10, Some(1 << 20), &run);
        assert!(
            little.starts_with("1MiB a checkpoint, 4MiB at most; `training.save_total_bytes`"),
            "{little}"
        );
        assert!(disk_of_mebibyte(usize::MAX, None, &run).ends_with("at most"));
        let uploaded = RunSection { upload_to: Some("s3://bucket/run".to_string()), ..RunSection::default() };
        assert_eq!(disk_of_mebibyte(10, None, &uploaded), "1MiB a checkpoint, 13MiB at most");
    }

    fn disk_of_mebibyte(save_total_limit: usize, save_total_bytes: Option<u64>, run: &RunSection) -> String {
        let training = TrainingConfig { save_total_limit, save_total_bytes, ..TrainingConfig::default() };
        disk(1 << 20, &training, run)
    }
}
