//! Memory of a training step, from the blueprint of its model: what its layers and head say that they take.
//!
//! Freed blocks are kept by size (`ops/memory`), so the peaks of all sizes add up even where they fall at
//! different moments. `tests/it/allocation.rs` compares both sums with what a step really takes.

use std::ops::Add;

use candle_core::DType;

use crate::layers::Footprint;
use crate::layers::Footprints;
use crate::layers::Layout;
use crate::models::Blueprint;
use crate::models::Encoder;
use crate::models::Head;
use crate::models::heads::HeadMemory;
use crate::models::heads::sentence_pairs::SentencePairHeads;

/// The program itself, its tokenizer, batches that are laid out ahead, cosines and sines of rotary positions
/// (4 MiB for 8,192 places of ModernBERT), threads and their buffers for matrix products: 15 to 90 MiB were
/// measured beside the counted tensors on two threads, the more the larger the model; 45 MiB with the
/// quickstart's.
pub const PROCESS_BYTES: u64 = 48 << 20;

/// A copy of a checkpoint is held while it is written where so many times its size is free.
pub const SAVING_ROOM: u64 = 2;

/// f32 values kept for each parameter: the value, its gradient and two moments.
const STATE_VALUES: u64 = 4;

/// f32 values of each parameter in a checkpoint: the value and two moments.
const CHECKPOINT_VALUES: u64 = 3;

/// Bytes of a checkpoint of so many parameters.
pub fn checkpoint_bytes(parameters: u64) -> u64 {
    4 * CHECKPOINT_VALUES * parameters
}

/// The largest training step of a run.
#[derive(Debug, Clone, Copy)]
pub struct StepSizes {
    /// Tokens of a micro-batch (T).
    pub tokens: u64,
    /// Tokens of its segments, at most (S).
    pub length: u64,
    /// Rows of it that reach the head (M).
    pub targets: u64,
    /// Type of activations and products.
    pub compute: DType,
    /// Whether layers save their input only.
    pub gradient_checkpointing: bool,
    /// True on a GPU, where the logits come in larger pieces and the decisions of dropout are saved.
    pub on_gpu: bool,
}

impl StepSizes {
    /// Pairs of segments, where each fills a row.
    fn pairs(&self) -> u64 {
        self.tokens.div_ceil(self.length.max(1))
    }
}

/// What a training step takes at its peak, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Values, gradients and moments; and the copy of the values in the compute type, unless that is f32.
    pub state_bytes: u64,
    /// What is saved between forward and backward.
    pub activation_bytes: u64,
    /// What backward needs besides, and the logits.
    pub temporary_bytes: u64,
    /// What a batch of evaluation takes; what a step has freed is given back before.
    pub evaluation_bytes: u64,
    /// The copy of a checkpoint that is written while training goes on; without [`SAVING_ROOM`] for it, steps
    /// wait for the disk instead.
    pub saving_bytes: u64,
}

impl Prediction {
    /// What a step takes and gives back.
    pub fn step_bytes(&self) -> u64 {
        self.activation_bytes + self.temporary_bytes
    }

    /// What a run needs: resident memory of the process at its peak, where it does not save meanwhile.
    pub fn total(&self) -> u64 {
        self.state_bytes + self.step_bytes().max(self.evaluation_bytes) + PROCESS_BYTES
    }

    /// What a run takes at its peak where `room_bytes` are there for it.
    pub fn peak(&self, room_bytes: u64) -> u64 {
        let total = self.total();
        let is_copied = total + SAVING_ROOM * self.saving_bytes <= room_bytes;
        total + if is_copied { self.saving_bytes } else { 0 }
    }
}

impl Add for Prediction {
    type Output = Self;

    /// Two models that are trained in one step.
    fn add(self, other: Self) -> Self {
        Self {
            state_bytes: self.state_bytes + other.state_bytes,
            activation_bytes: self.activation_bytes + other.activation_bytes,
            temporary_bytes: self.temporary_bytes + other.temporary_bytes,
            // One after the other.
            evaluation_bytes: self.evaluation_bytes.max(other.evaluation_bytes),
            saving_bytes: self.saving_bytes + other.saving_bytes,
        }
    }
}

/// What a run will train, before it has values: as much as a forecast needs.
pub trait Outline {
    /// Elements of all parameters, without gaps between them.
    fn num_parameters(&self) -> u64;

    /// Memory of the largest step; and of an evaluation of as many tokens, beside the state.
    fn memory(&self, step: &StepSizes) -> Prediction;

    /// Floating-point operations of forward and backward of a micro-batch whose segments are all as long as
    /// its longest; what gradient checkpointing computes again is not counted.
    fn flops(&self, step: &StepSizes) -> f64;
}

impl<H: Head> Outline for Blueprint<H> {
    fn num_parameters(&self) -> u64 {
        self.layout.num_elements() as u64
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
    fn num_parameters(&self) -> u64 {
        self.layout.num_elements() as u64
    }

    /// Of rows with several short pairs the second head takes more, which is little beside the first.
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

/// Values, gradients and moments of these parameters, and their copy in the compute type.
pub(super) fn state_bytes(layout: &Layout, compute: DType) -> u64 {
    let shadow_bytes = if compute == DType::F32 { 0 } else { compute.size_in_bytes() as u64 };
    layout.len() as u64 * (4 * STATE_VALUES + shadow_bytes)
}

/// What a model with such a head takes in a step and in evaluation, beside its parameters; `chooses` where the
/// head reads the rows of its targets alone.
pub(super) fn activations(
    encoder: &Encoder,
    head: HeadMemory,
    chooses: bool,
    step: &StepSizes,
) -> Prediction {
    let value_bytes = step.compute.size_in_bytes() as u64;
    let of = |footprint: Footprint| footprint.bytes(step.tokens, value_bytes);
    let of_all = |footprints: Footprints| footprints.bytes(step.tokens, step.targets, value_bytes);
    let (rows, of_rows) = encoder.of_positions(step.gradient_checkpointing);
    let [kept, besides] = of_rows.map(|footprint| footprint.bytes(rows, value_bytes));
    let (dropped, said) = if step.on_gpu {
        let dropped = encoder.kept_bytes(step.tokens, step.length, step.gradient_checkpointing);
        (dropped, of(encoder.said(step.length)))
    } else {
        (0, 0)
    };
    Prediction {
        state_bytes: 0,
        saving_bytes: 0,
        activation_bytes: of_all(encoder.saved(step.gradient_checkpointing, chooses))
            + kept
            + dropped
            + head.saved_bytes,
        temporary_bytes: of_all(encoder.temporary(step.gradient_checkpointing, chooses))
            + besides
            + 2 * said
            + head.temporary_bytes,
        // Less by half the logits in f32, of which an evaluation has no gradient.
        evaluation_bytes: of(encoder.inferring()) + besides + said + head.saved_bytes + head.temporary_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::EncoderConfig;
    use crate::families::Family;
    use crate::families::ModelConfig;
    use crate::families::named_model;
    use crate::models::MaskedLmHead;

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

    /// Parameters, with the gaps that align them.
    const N: u64 = 124_697_472;

    #[test]
    fn roberta_base_at_8_by_128_as_counted_by_hand() {
        assert_eq!(roberta().num_parameters(), 124_697_433);
        let prediction = base(DType::F32, false);
        assert_eq!(prediction.state_bytes, 16 * N);
        let (td, tf) = (1024 * 768, 1024 * 3072);
        let (md, mf, mv) = (153 * 768, 153 * 3072, 153 * 50_265);
        let statistics = 1024 * (8 + 12 * 12 * 4 + 11 * 16) + 153 * (16 + 12);
        let of_tokens = 94 * td + 22 * tf;
        assert_eq!(prediction.activation_bytes, 4 * (of_tokens + 5 * md + 2 * mf) + statistics);
        assert_eq!(prediction.temporary_bytes, 4 * (6 * td + 2 * tf + 7 * md + 2 * mf) + 8 * mv);
    }

    #[test]
    fn a_gpu_holds_more_logits_at_once_and_a_bit_for_each_decision_of_dropout() {
        let [host, gpu] = [false, true].map(|on_gpu| {
            let (tokens, length, targets, compute) = (8192, 128, 1229, DType::BF16);
            let gradient_checkpointing = false;
            let sizes = StepSizes { tokens, length, targets, compute, gradient_checkpointing, on_gpu };
            roberta().memory(&sizes)
        });
        assert_eq!(gpu.temporary_bytes - host.temporary_bytes, (1229 * 50_304 - 250 * 50_265) * 6);
        // Of probabilities, and of the ends of both blocks.
        let kept = 12 * (12 * 64 * 128 * 128 + 2 * 8192 * 768) / 8;
        assert_eq!(gpu.activation_bytes - host.activation_bytes, kept);
    }

    /// What queries and keys say of 256 rows of the tables in 12 heads, and the gradients of both; and, of an
    /// evaluation, what they say.
    #[test]
    fn a_gpu_holds_what_tokens_say_of_relative_positions() {
        let deberta = Blueprint::masked_lm(&named_model("deberta-v3-base").unwrap());
        let [host, gpu] = [false, true].map(|on_gpu| {
            let (tokens, length, targets, compute) = (8192, 128, 0, DType::BF16);
            let gradient_checkpointing = true;
            deberta.memory(&StepSizes { tokens, length, targets, compute, gradient_checkpointing, on_gpu })
        });
        let said = 2 * 12 * 8192 * 256 * 2;
        assert_eq!(gpu.temporary_bytes - host.temporary_bytes, 2 * said);
        assert_eq!(gpu.evaluation_bytes - host.evaluation_bytes, said);
        let kept = (12 * 64 * 128 * 128 + 2 * 8192 * 768) / 8;
        assert_eq!(gpu.activation_bytes - host.activation_bytes, kept);
    }

    #[test]
    fn half_types_halve_activations_and_add_a_shadow() {
        let (single, half) = (base(DType::F32, false), base(DType::BF16, false));
        assert_eq!(half.state_bytes, 18 * N);
        assert!(half.activation_bytes < single.activation_bytes * 51 / 100);
    }

    #[test]
    fn checkpointing_saves_most_of_the_activations() {
        let (whole, checkpointed) = (base(DType::F32, false), base(DType::F32, true));
        let besides = |p: Prediction| p.activation_bytes + p.temporary_bytes;
        assert!(besides(checkpointed) < besides(whole) * 3 / 10, "{checkpointed:?} {whole:?}");
    }
}
