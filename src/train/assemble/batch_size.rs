//! How many rows a device takes at once: what fits, by the prediction of `models/memory`.
//!
//! The rows of an update stay what the configuration says: fewer rows at once mean more micro-batches. Which tokens are
//! masked and dropped does not depend on it.

use anyhow::Result;
use candle_core::Device;

use crate::config::ModelConfig;
use crate::config::TrainingConfig;
use crate::error::Problem;
use crate::fs;
use crate::layers::Registry;
use crate::models::Encoder;
use crate::models::families;
use crate::models::memory::Prediction;
use crate::models::memory::StepSizes;
use crate::ops::cuda;
use crate::quantity::format_bytes;
use crate::telemetry::Progress;
use crate::train::assemble::Machine;

/// Left to what no prediction knows: CUDA's own context and the kernels, the workspace of products, fragments.
const GPU_RESERVE_BYTES: u64 = 1 << 30;

/// Share of the free memory of a CPU that a run may take: the rest of the system lives, too.
const CPU_SHARE: f64 = 0.9;

/// The shapes of a run, as far as memory goes.
#[derive(Debug, Clone, Copy)]
pub struct Shapes<'a> {
    /// Family and shape, the vocabulary included.
    pub model: &'a ModelConfig,
    /// Tokens of a row at most.
    pub length: usize,
    /// Share of the tokens that carry a label at most.
    pub masked_share: f64,
}

impl Shapes<'_> {
    /// Bytes of a step with so many rows at once.
    fn predicted_bytes(&self, rows: usize, training: &TrainingConfig, machine: &Machine) -> u64 {
        let mut registry = Registry::default();
        let encoder = Encoder::new(&mut registry, self.model);
        families::masked_lm_head(&mut registry, self.model, &encoder);
        let tokens = (rows * self.length) as u64;
        let sizes = StepSizes {
            model: self.model,
            parameters: registry.layout().len() as u64,
            tokens,
            masked: (tokens as f64 * self.masked_share).ceil() as u64,
            compute: machine.policy.compute,
            gradient_checkpointing: training.gradient_checkpointing,
        };
        Prediction::of(&sizes).total()
    }

    /// The most rows at once that divide the rows of an update and fit into `bytes`; `None` where not even one does.
    fn most_rows(&self, training: &TrainingConfig, machine: &Machine, bytes: u64) -> Option<usize> {
        let update = training.per_device_train_batch_size * training.gradient_accumulation_steps;
        let divisors = (1..=update).rev().filter(|rows| update.is_multiple_of(*rows));
        divisors.into_iter().find(|&rows| self.predicted_bytes(rows, training, machine) <= bytes)
    }
}

/// Bytes that a run on this machine may take; `None` where nobody can tell.
fn room(machine: &Machine) -> Option<u64> {
    match cuda::properties(&machine.device) {
        Some(gpu) => Some(gpu.memory_bytes.saturating_sub(GPU_RESERVE_BYTES)),
        None => fs::available_bytes().map(|bytes| (bytes as f64 * CPU_SHARE) as u64),
    }
}

/// The training with as many rows at once as fit, where the configuration leaves that open; else as it is. Says what it took.
pub fn fitted(training: &TrainingConfig, shapes: Shapes<'_>, machine: &Machine, progress: &Progress) -> Result<TrainingConfig> {
    if !training.auto_find_batch_size {
        return Ok(training.clone());
    }
    let Some(bytes) = room(machine) else {
        progress.warn("`training.auto_find_batch_size`: nobody can tell how much memory is free; the batch stays as it is");
        return Ok(training.clone());
    };
    let Some(rows) = shapes.most_rows(training, machine, bytes) else {
        let needed = format_bytes(shapes.predicted_bytes(1, training, machine));
        let problem = Problem::usage(format!("not even one row fits: it needs about {needed}, {} are there", format_bytes(bytes)));
        return Err(problem
            .at("training.auto_find_batch_size")
            .hint("set `training.gradient_checkpointing: true`, or take a smaller model")
            .into());
    };
    let update = training.per_device_train_batch_size * training.gradient_accumulation_steps;
    let needed = format_bytes(shapes.predicted_bytes(rows, training, machine));
    progress.note(&format!("{rows} rows at once, {} times an update, need about {needed} of {}", update / rows, format_bytes(bytes)));
    Ok(TrainingConfig { per_device_train_batch_size: rows, gradient_accumulation_steps: update / rows, ..training.clone() })
}

/// An error of a full GPU with the batch that should fit in its hint; any other error as it is.
pub fn explain(error: anyhow::Error, training: &TrainingConfig, shapes: Shapes<'_>, machine: &Machine) -> anyhow::Error {
    if matches!(machine.device, Device::Cpu) || !cuda::is_out_of_memory(&format!("{error:#}")) {
        return error;
    }
    // What did not fit was more than its prediction: half of it is what the next try should take at most.
    let rows = training.per_device_train_batch_size;
    let fits = room(machine).and_then(|bytes| shapes.most_rows(training, machine, bytes)).map(|fits| fits.min((rows / 2).max(1)));
    let hint = match fits {
        Some(fits) if fits < rows => {
            let steps = rows * training.gradient_accumulation_steps / fits;
            format!(
                "`training.per_device_train_batch_size: {fits}` with `training.gradient_accumulation_steps: {steps}` should fit and is the same update"
            )
        }
        _ => "set `training.gradient_checkpointing: true`, or take a smaller model".to_string(),
    };
    Problem::new(format!("{rows} rows of up to {} tokens do not fit: {error:#}", shapes.length))
        .at("training.per_device_train_batch_size")
        .hint(hint)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ComputeType;
    use crate::config::EncoderConfig;
    use crate::config::Family;
    use crate::precision::Hardware;
    use crate::precision::Policy;

    fn machine() -> Machine {
        let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
        Machine { device: Device::Cpu, policy, threads: 1, without_gpu: None }
    }

    #[test]
    fn the_most_rows_that_fit_divide_the_update() {
        let model =
            ModelConfig { family: Family::Roberta, encoder: EncoderConfig { vocab_size: 8192, ..EncoderConfig::of(Family::Roberta) } };
        let shapes = Shapes { model: &model, length: 128, masked_share: 0.15 };
        let training = TrainingConfig { per_device_train_batch_size: 16, gradient_accumulation_steps: 3, ..TrainingConfig::default() };
        let needs = |rows| shapes.predicted_bytes(rows, &training, &machine());
        let most = |bytes| shapes.most_rows(&training, &machine(), bytes);
        assert_eq!(most(u64::MAX), Some(48));
        assert_eq!(most(needs(48) - 1), Some(24));
        assert_eq!(most(needs(13)), Some(12), "13 rows would fit, but do not divide 48");
        assert_eq!((most(needs(1)), most(needs(1) - 1)), (Some(1), None));
    }

    #[test]
    fn errors_of_other_kinds_stay_as_they_are() {
        let model = ModelConfig { family: Family::Roberta, encoder: EncoderConfig::of(Family::Roberta) };
        let shapes = Shapes { model: &model, length: 128, masked_share: 0.15 };
        let error = explain(anyhow::anyhow!("a disk is full"), &TrainingConfig::default(), shapes, &machine());
        assert_eq!(error.to_string(), "a disk is full");
    }
}
