//! Memory of a training step, from the configuration alone: what the layers save, counted tensor by tensor.
//!
//! The counts are those of the code: a layer's `Saved` in `layers/`, a head's in `models/heads/`, and how
//! many tensors of a size live at once in backward. Freed blocks are kept by size (`ops/memory`), so the
//! peaks of all sizes add up even where they fall at different moments. `tests/it/allocation.rs` compares
//! both sums with what a step really takes.

use candle_core::DType;

use crate::config::ModelConfig;
use crate::ops::linear_cross_entropy::piece_values;

/// The program itself, its threads and their buffers for matrix products: 15 to 90 MiB were measured beside
/// the counted tensors on two threads, the more the larger the model.
pub const PROCESS_BYTES: u64 = 24 << 20;

/// f32 values kept for each parameter: the value, its gradient and two moments.
const STATE_VALUES: u64 = 4;

/// What a masked-LM training step is made of.
#[derive(Debug, Clone, Copy)]
pub struct StepSizes<'a> {
    /// Family and shape, the vocabulary included.
    pub model: &'a ModelConfig,
    /// Values of all parameters (N).
    pub parameters: u64,
    /// Tokens of a micro-batch (T).
    pub tokens: u64,
    /// Masked positions among them (M).
    pub masked: u64,
    /// Type of activations and products.
    pub compute: DType,
    /// Whether layers save their input only.
    pub gradient_checkpointing: bool,
    /// Whether it runs on a GPU, where the logits come in larger pieces.
    pub on_gpu: bool,
}

/// What a training step takes at its peak, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Values, gradients and moments; and the copy of the values in the compute type, unless that is f32.
    pub state_bytes: u64,
    /// What is saved between forward and backward.
    pub activation_bytes: u64,
    /// What backward needs besides, and the logits.
    pub temporary_bytes: u64,
}

/// How many tensors of each size, and bytes of statistics that are always f32.
#[derive(Debug, Clone, Copy, Default)]
struct Tensors {
    td: u64,
    tf: u64,
    md: u64,
    statistics_bytes: u64,
}

impl Tensors {
    fn bytes(self, sizes: &StepSizes<'_>) -> u64 {
        let (shape, t, m) = (&sizes.model.encoder, sizes.tokens, sizes.masked);
        let (d, f) = (shape.hidden_size as u64, shape.intermediate_size as u64);
        let values = t * (self.td * d + self.tf * f) + m * self.md * d;
        values * sizes.compute.size_in_bytes() as u64 + self.statistics_bytes
    }
}

impl Prediction {
    /// The peak of a step.
    pub fn of(sizes: &StepSizes<'_>) -> Self {
        let compute_bytes = sizes.compute.size_in_bytes() as u64;
        let shadow_bytes = if sizes.compute == DType::F32 { 0 } else { compute_bytes };
        Self {
            state_bytes: sizes.parameters * (4 * STATE_VALUES + shadow_bytes),
            activation_bytes: saved(sizes).bytes(sizes),
            temporary_bytes: temporaries(sizes).bytes(sizes),
        }
    }

    /// What a step takes and gives back.
    pub fn step_bytes(&self) -> u64 {
        self.activation_bytes + self.temporary_bytes
    }

    /// Resident memory of the process at its peak.
    pub fn total(&self) -> u64 {
        self.state_bytes + self.step_bytes() + PROCESS_BYTES
    }
}

/// Bytes of a layer's statistics for one token: log-sum-exp of each head, mean and deviation of two norms.
fn layer_statistics_bytes(sizes: &StepSizes<'_>) -> u64 {
    4 * (sizes.model.encoder.num_attention_heads as u64 + 4)
}

/// Bytes of the logits that are in memory at once, f32, and of their gradient in the compute type.
fn logits_bytes(sizes: &StepSizes<'_>) -> u64 {
    let vocabulary = sizes.model.encoder.vocab_size as u64;
    let rows = sizes.masked.min((piece_values(sizes.on_gpu) as u64 / vocabulary.max(1)).max(1));
    rows * vocabulary * (4 + sizes.compute.size_in_bytes() as u64)
}

/// What lives between forward and backward.
fn saved(sizes: &StepSizes<'_>) -> Tensors {
    let layers = sizes.model.encoder.num_hidden_layers as u64;
    // The sum of the embeddings and the input of the first layer. Of each layer: q, k, v, the attention
    // output, the sum before and the output of the first norm, the sum before and the output of the second
    // one, which is the next layer's input; and of the feed-forward block both sides of GELU.
    let (td, tf, layer_statistics) = if sizes.gradient_checkpointing {
        (2 + layers, 0, 0)
    } else {
        (2 + 8 * layers, 2 * layers, layers * layer_statistics_bytes(sizes))
    };
    // The norm of the embeddings; the norm of the head and the log-sum-exp of the loss.
    let statistics_bytes = sizes.tokens * (8 + layer_statistics) + 12 * sizes.masked;
    Tensors { td, tf, statistics_bytes, ..Tensors::default() }
}

/// The most tensors of each size that live besides the saved ones.
fn temporaries(sizes: &StepSizes<'_>) -> Tensors {
    // In the attention block of the last layer: the gradients of the layer's output and of its middle, of the
    // attention output, of the input, of q, k and v, while the last hidden states are gone: 7 - 1. In the
    // feed-forward block: the gradients of both sides of GELU. In the head: what was gathered, both sides of
    // GELU, the normed rows, and the gradients of these four; the logits of a piece with their gradient.
    let statistics_bytes = logits_bytes(sizes);
    let temporaries = Tensors { td: 6, tf: 2, md: 8, statistics_bytes };
    if !sizes.gradient_checkpointing {
        return temporaries;
    }
    // And what the layer in hand saves, but for its output.
    let statistics_bytes = statistics_bytes + sizes.tokens * layer_statistics_bytes(sizes);
    Tensors { td: temporaries.td + 7, tf: temporaries.tf + 2, statistics_bytes, ..temporaries }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EncoderConfig;
    use crate::config::Family;

    fn base(compute: DType, gradient_checkpointing: bool) -> Prediction {
        let encoder = EncoderConfig { vocab_size: 50_265, ..EncoderConfig::of(Family::Roberta) };
        let model = ModelConfig { family: Family::Roberta, encoder };
        Prediction::of(&StepSizes {
            model: &model,
            parameters: 124_697_433,
            tokens: 1024,
            masked: 153,
            compute,
            gradient_checkpointing,
            on_gpu: false,
        })
    }

    #[test]
    fn roberta_base_at_8_by_128_as_counted_by_hand() {
        let prediction = base(DType::F32, false);
        assert_eq!(prediction.state_bytes, 16 * 124_697_433);
        let (td, tf, md, mv) = (1024 * 768, 1024 * 3072, 153 * 768, 153 * 50_265);
        let statistics = 1024 * (8 + 12 * (12 * 4 + 16)) + 153 * 12;
        assert_eq!(prediction.activation_bytes, 4 * (98 * td + 24 * tf) + statistics);
        assert_eq!(prediction.temporary_bytes, 4 * (6 * td + 2 * tf + 8 * md) + 8 * mv);
    }

    #[test]
    fn a_gpu_holds_more_logits_at_once() {
        let encoder = EncoderConfig { vocab_size: 50_265, ..EncoderConfig::of(Family::Roberta) };
        let model = ModelConfig { family: Family::Roberta, encoder };
        let logits = |on_gpu| {
            let sizes = StepSizes {
                model: &model,
                parameters: 0,
                tokens: 8192,
                masked: 1229,
                compute: DType::BF16,
                gradient_checkpointing: false,
                on_gpu,
            };
            logits_bytes(&sizes)
        };
        assert_eq!((logits(false), logits(true)), (250 * 50_265 * 6, 1229 * 50_265 * 6));
    }

    #[test]
    fn half_types_halve_activations_and_add_a_shadow() {
        let (single, half) = (base(DType::F32, false), base(DType::BF16, false));
        assert_eq!(half.state_bytes, 18 * 124_697_433);
        assert!(half.activation_bytes < single.activation_bytes * 51 / 100);
    }

    #[test]
    fn checkpointing_saves_most_of_the_activations() {
        let (whole, checkpointed) = (base(DType::F32, false), base(DType::F32, true));
        let besides = |p: Prediction| p.activation_bytes + p.temporary_bytes;
        assert!(besides(checkpointed) < besides(whole) * 3 / 10, "{checkpointed:?} {whole:?}");
    }
}
