//! Heads: hidden states of chosen positions to predictions and losses, with explicit backward.

pub mod masked_lm;
pub mod replaced_tokens;
pub mod sentence_pairs;
pub mod sequence_classification;
pub mod token_classification;
mod transform;

use candle_core::{DType, Result, Tensor};

use crate::layers::{Chosen, Context, Gradients};
use ops::indices::Indices;

/// The `M` rows of a batch that have a label. Labels are not needed to compute logits only.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// Their rows in the hidden states, `[M]`.
    pub positions: Indices<'a>,
    /// Their classes, `[M]`. For a head that predicts `O` numbers, the bits of f32 numbers, and for a head of
    /// `O` labels, 0 or 1: `[M, O]`.
    pub labels: Indices<'a>,
    /// Probabilities that a teacher gives their classes, `[M, C]`, as the bits of f32 numbers; empty without a
    /// teacher.
    pub teacher: &'a [u32],
    /// Their keys for dropout, `[M]`.
    pub keys: Indices<'a, u64>,
}

/// Memory of a head in a training step, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadMemory {
    /// Memory kept from forward to backward.
    pub saved_bytes: u64,
    /// Peak of the memory that backward needs in addition.
    pub temporary_bytes: u64,
}

/// The head of a model, on top of an encoder: predictions and losses of the rows that have a label.
///
/// Its input are the last hidden states of the rows that it reads: those of [`Head::chosen`], `[M, D]`, or
/// all, `[T, D]`.
pub trait Head {
    /// Returns true if the head reads only the rows of its targets.
    fn chooses(&self) -> bool {
        true
    }

    /// The rows that the head reads; `None` for all.
    fn chosen<'a>(&self, targets: Targets<'a>) -> Option<Chosen<'a>> {
        let Targets { positions, keys, .. } = targets;
        self.chooses().then_some(Chosen { positions, keys })
    }

    /// Floating-point operations of forward and backward of `rows` rows.
    fn flops(&self, rows: f64) -> f64;

    /// Memory of `rows` rows, computed in `compute`; on a GPU logits are computed in larger pieces.
    fn memory(&self, rows: u64, compute: DType, on_gpu: bool) -> HeadMemory;

    /// Logits of the targets, `[M, classes]`; their labels are not read.
    fn logits(&self, hidden: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor>;

    /// The summed loss of the targets and the number of correct predictions, f64 `[2]`, as in
    /// [`Entropy`](ops::cross_entropy::Entropy).
    fn loss(&self, hidden: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor>;

    /// [`Head::loss`], and the gradient of `scale` times the loss with respect to the hidden states; the
    /// gradients of the head's parameters accumulate.
    fn loss_and_gradient(
        &self,
        hidden: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)>;
}
