//! Memory of a training step, from the blueprint of its model: the sum of the memory of its layers and head.
//!
//! Freed blocks are cached by size (`ops/memory`), so the peaks of all sizes add up even if they occur at
//! different moments. `tests/it/allocation.rs` compares both sums with the measured memory of a step.

use std::ops::Add;

use candle_core::DType;

use crate::layers::Layout;
use crate::models::heads::HeadMemory;
use crate::models::heads::sentence_pairs::SentencePairHeads;
use crate::models::{Blueprint, Encoder, Head};

/// The program itself, its tokenizer, prefetched batches, cosines and sines of rotary positions (4 MiB for
/// 8,192 positions of ModernBERT), threads and their buffers for matrix products: 15 to 90 MiB were measured
/// in addition to the counted tensors on two threads, more for larger models; 45 MiB with the quickstart's
/// model.
pub const PROCESS_BYTES: u64 = 48 << 20;

/// Save in the background only if at least this many times the checkpoint's size is free.
pub const SAVING_ROOM: u64 = 2;

/// f32 values kept for each parameter by the model: the value and its gradient. The optimizer adds its state.
const STATE_VALUES: u64 = 2;

/// The largest training step of a run.
#[derive(Debug, Clone, Copy)]
pub struct StepSizes {
    /// Tokens of a micro-batch (T).
    pub tokens: u64,
    /// Most tokens of one of its segments (S).
    pub length: u64,
    /// Rows of the micro-batch that reach the head (M).
    pub targets: u64,
    /// Type of activations and products.
    pub compute: DType,
    /// Gradient checkpointing: layers save only their input.
    pub gradient_checkpointing: bool,
    /// True on a GPU, where the logits are computed in larger pieces and dropout masks are saved.
    pub on_gpu: bool,
}

impl StepSizes {
    /// The same step, in which each token is predicted if `all` is true.
    #[must_use]
    pub fn predicting_all(self, all: bool) -> Self {
        Self { targets: if all { self.tokens } else { self.targets }, ..self }
    }

    /// Number of pairs of segments, if each pair fills a row.
    fn pairs(&self) -> u64 {
        self.tokens.div_ceil(self.length.max(1))
    }
}

/// Memory of a training step at its peak, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Values and gradients, and the copy of the values in the compute type, unless that is f32; in the
    /// forecast of a run, the state of the optimizer, too.
    pub state_bytes: u64,
    /// Values saved between forward and backward.
    pub activation_bytes: u64,
    /// Other memory of the backward pass, and the logits.
    pub temporary_bytes: u64,
    /// Memory of an evaluation batch; blocks freed by a step are returned before an evaluation.
    pub evaluation_bytes: u64,
    /// The copy of a checkpoint that is written during training; without [`SAVING_ROOM`] for it, training
    /// waits for the disk instead.
    pub saving_bytes: u64,
}

impl Prediction {
    /// Memory that a step allocates and frees.
    pub fn step_bytes(&self) -> u64 {
        self.activation_bytes + self.temporary_bytes
    }

    /// Memory of a run: resident memory of the process at its peak, if it does not save in the background.
    pub fn total(&self) -> u64 {
        self.state_bytes + self.step_bytes().max(self.evaluation_bytes) + PROCESS_BYTES
    }

    /// Peak memory of a run if `room_bytes` are available.
    pub fn peak(&self, room_bytes: u64) -> u64 {
        let total = self.total();
        let is_copied = total + SAVING_ROOM * self.saving_bytes <= room_bytes;
        total + if is_copied { self.saving_bytes } else { 0 }
    }
}

impl Add for Prediction {
    type Output = Self;

    /// The sum for two models that are trained in one step.
    fn add(self, other: Self) -> Self {
        Self {
            state_bytes: self.state_bytes + other.state_bytes,
            activation_bytes: self.activation_bytes + other.activation_bytes,
            temporary_bytes: self.temporary_bytes + other.temporary_bytes,
            // Their evaluations run one after the other.
            evaluation_bytes: self.evaluation_bytes.max(other.evaluation_bytes),
            saving_bytes: self.saving_bytes + other.saving_bytes,
        }
    }
}

/// The models of a run without their values: enough for a prediction of memory and time.
pub trait Outline {
    /// Places of all parameters in the flat buffers.
    fn layout(&self) -> &Layout;

    /// Elements of all parameters, without gaps between them.
    fn num_parameters(&self) -> u64 {
        self.layout().num_elements() as u64
    }

    /// Memory of the largest step, without the state of the optimizer; and of an evaluation of as many
    /// tokens, in addition to the state.
    fn memory(&self, step: &StepSizes) -> Prediction;

    /// Floating-point operations of forward and backward of a micro-batch, assuming that all segments are as
    /// long as its longest; the recomputation of gradient checkpointing is not counted.
    fn flops(&self, step: &StepSizes) -> f64;
}

impl<H: Head> Outline for Blueprint<H> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn memory(&self, step: &StepSizes) -> Prediction {
        let head = self.head.memory(step.targets, step.compute, step.on_gpu);
        let state_bytes = state_bytes(&self.layout, step.compute);
        Prediction { state_bytes, ..activations(&self.encoder, head, self.head.chooses(), step) }
    }

    fn flops(&self, step: &StepSizes) -> f64 {
        self.flops(step.tokens as f64, step.length as f64, step.targets as f64)
    }
}

impl Outline for Blueprint<SentencePairHeads> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// In rows with several short pairs the second head takes more memory, which is little compared with the
    /// first head.
    fn memory(&self, step: &StepSizes) -> Prediction {
        let head = self.head.memory(step.targets, step.pairs(), step.compute, step.on_gpu);
        let state_bytes = state_bytes(&self.layout, step.compute);
        Prediction { state_bytes, ..activations(&self.encoder, head, false, step) }
    }

    fn flops(&self, step: &StepSizes) -> f64 {
        let heads = self.head.flops(step.targets as f64, step.pairs() as f64);
        let tokens = step.tokens as f64;
        self.encoder.flops(tokens, step.length as f64, tokens) + heads
    }
}

/// Bytes of values and gradients of these parameters, and of their copy in the compute type.
pub(super) fn state_bytes(layout: &Layout, compute: DType) -> u64 {
    let shadow_bytes = if compute == DType::F32 { 0 } else { compute.size_in_bytes() as u64 };
    layout.len() as u64 * (4 * STATE_VALUES + shadow_bytes)
}

/// Memory of a model with this head in a step and in an evaluation, in addition to its parameters; `chooses`
/// is true if the head reads only the rows of its targets.
pub(super) fn activations(
    encoder: &Encoder,
    head: HeadMemory,
    chooses: bool,
    step: &StepSizes,
) -> Prediction {
    let value_bytes = step.compute.size_in_bytes() as u64;
    let (rows, of_rows) = encoder.of_positions(step.gradient_checkpointing);
    let [kept, besides] = of_rows.map(|footprint| footprint.bytes(rows, value_bytes));
    let (dropped, position_scores) = if step.on_gpu {
        let dropped = encoder.kept_bytes(step.tokens, step.length, step.gradient_checkpointing);
        (dropped, encoder.position_scores(step.length).bytes(step.tokens, value_bytes))
    } else {
        (0, 0)
    };
    Prediction {
        state_bytes: 0,
        saving_bytes: 0,
        activation_bytes: encoder.saved(step.gradient_checkpointing, chooses).bytes(
            step.tokens,
            step.targets,
            value_bytes,
        ) + kept
            + dropped
            + head.saved_bytes,
        temporary_bytes: encoder.temporary(step.gradient_checkpointing, chooses).bytes(
            step.tokens,
            step.targets,
            value_bytes,
        ) + besides
            + 2 * position_scores
            + head.temporary_bytes,
        // Too much by half of the f32 logits: an evaluation has no gradient of them.
        evaluation_bytes: encoder.inferring().bytes(step.tokens, value_bytes)
            + besides
            + position_scores
            + head.saved_bytes
            + head.temporary_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::MaskedLmHead;
    use base::families::{EncoderConfig, Family, ModelConfig, named_model};

    fn roberta() -> Blueprint<MaskedLmHead> {
        let encoder = EncoderConfig { vocab_size: 50_265, ..EncoderConfig::of(Family::ROBERTA) };
        Blueprint::masked_lm(&ModelConfig { family: Family::ROBERTA, encoder })
    }

    fn base(compute: DType, gradient_checkpointing: bool) -> Prediction {
        roberta().memory(&StepSizes {
            tokens: 1024,
            length: 128,
            targets: 153,
            compute,
            gradient_checkpointing,
            on_gpu: false,
        })
    }

    /// Parameters, including the gaps that align them.
    const N: u64 = 124_697_472;

    #[test]
    fn roberta_base_at_8_by_128_as_counted_by_hand() {
        assert_eq!(roberta().num_parameters(), 124_697_433);
        let prediction = base(DType::F32, false);
        assert_eq!(prediction.state_bytes, 8 * N);
        let td = 1024 * 768;
        let tf = 1024 * 3072;
        let md = 153 * 768;
        let mf = 153 * 3072;
        let mv = 153 * 50_265;
        let statistics = 1024 * (8 + 12 * 12 * 4 + 11 * 16) + 153 * (16 + 12);
        let of_tokens = 94 * td + 22 * tf;
        assert_eq!(prediction.activation_bytes, 4 * (of_tokens + 5 * md + 2 * mf) + statistics);
        assert_eq!(prediction.temporary_bytes, 4 * (6 * td + 2 * tf + 7 * md + 2 * mf) + 8 * mv);
    }

    #[test]
    fn a_gpu_has_more_logits_at_one_time_and_a_bit_for_each_dropout_decision() {
        let [host, gpu] = [false, true].map(|on_gpu| {
            let tokens = 8192;
            let length = 128;
            let targets = 1229;
            let compute = DType::BF16;
            let gradient_checkpointing = false;
            let sizes = StepSizes { tokens, length, targets, compute, gradient_checkpointing, on_gpu };
            roberta().memory(&sizes)
        });
        assert_eq!(gpu.temporary_bytes - host.temporary_bytes, (1229 * 50_304 - 250 * 50_265) * 6);
        // Masks of the probabilities, and of the ends of both blocks.
        let kept = 12 * (12 * 64 * 128 * 128 + 2 * 8192 * 768) / 8;
        assert_eq!(gpu.activation_bytes - host.activation_bytes, kept);
    }

    /// Scores of queries and keys with 256 rows of the tables in 12 heads, and the gradients of both; in an
    /// evaluation, only the scores.
    #[test]
    fn a_gpu_saves_the_scores_of_relative_positions() {
        let deberta = Blueprint::masked_lm(&named_model("deberta-v3-base").unwrap());
        let [host, gpu] = [false, true].map(|on_gpu| {
            let tokens = 8192;
            let length = 128;
            let targets = 0;
            let compute = DType::BF16;
            let gradient_checkpointing = true;
            deberta.memory(&StepSizes { tokens, length, targets, compute, gradient_checkpointing, on_gpu })
        });
        let scores = 2 * 12 * 8192 * 256 * 2;
        assert_eq!(gpu.temporary_bytes - host.temporary_bytes, 2 * scores);
        assert_eq!(gpu.evaluation_bytes - host.evaluation_bytes, scores);
        let kept = (12 * 64 * 128 * 128 + 2 * 8192 * 768) / 8;
        assert_eq!(gpu.activation_bytes - host.activation_bytes, kept);
    }

    #[test]
    fn half_types_halve_activations_and_add_a_shadow() {
        let single = base(DType::F32, false);
        let half = base(DType::BF16, false);
        assert_eq!(half.state_bytes, 10 * N);
        assert!(half.activation_bytes < single.activation_bytes * 51 / 100);
    }

    #[test]
    fn checkpointing_saves_most_of_the_activations() {
        let whole = base(DType::F32, false);
        let checkpointed = base(DType::F32, true);
        assert!(checkpointed.step_bytes() < whole.step_bytes() * 3 / 10, "{checkpointed:?} {whole:?}");
    }
}
