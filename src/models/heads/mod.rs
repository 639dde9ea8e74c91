//! Heads: hidden states of chosen positions to predictions, with explicit backward.

pub mod masked_lm;
pub mod sequence_classification;

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Gradients;

/// What stands on top of an encoder: logits of the `M` rows that carry a label.
pub trait Head {
    /// What backward needs.
    type Saved;

    /// Logits of the rows at `positions` of `hidden_td`, `[M, classes]`.
    fn forward(&self, hidden_td: &Tensor, positions: &[u32], ctx: &Context<'_>) -> Result<(Tensor, Self::Saved)>;

    /// Gradient of the hidden states of all `tokens` tokens, `[T, D]`; those of the head's parameters accumulate.
    fn backward(
        &self,
        d_logits: &Tensor,
        positions: &[u32],
        tokens: usize,
        saved: &Self::Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor>;
}
