//! Scaled dot-product attention over packed rows: tokens attend only to tokens of their own segment.
//!
//! For each head and segment, with `c = 1 / sqrt(K)` and `z` the dropout factor of a probability (0 or `1 /
//! (1 - p)`):
//!
//! ```text
//! s = c q k^T      p = softmax(s)      o = (p z) v
//! dv = (p z)^T do      dp = (do v^T) z      ds = p (dp - rowsum(do o))      dq = c ds k      dk = c ds^T q
//! ```
//!
//! A [`Reach`] restricts the keys of its segment that a query sees: to those within a window, or, in causal
//! attention, to those that do not follow the query. Products with other keys are skipped, as far as the
//! blocks of rows allow.
//!
//! `q`, `k`, `v`, `o` are `[T, D]`; head `h` is columns `h K .. (h + 1) K`. Saved for backward: `q`, `k`,
//! `v`, `o` and the log-sum-exp of each row of `s` (`[T, H]`); backward recomputes the probabilities. The CPU
//! also redraws dropout in backward, while a GPU saves its decisions, one bit per probability. No output is
//! added to previous values. `[T, D]` tensors are f32, bf16 or f16; scores, softmax and sums are f32.
//! Formulation after Dao et al., "FlashAttention" (2022), section 3.

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::element::by_dtype;
use crate::indices::Indices;

pub(crate) mod cpu;
pub(crate) mod cuda;
#[cfg(test)]
pub(crate) mod drawn;
pub(crate) mod earlier;
pub mod reference;
pub(crate) mod rows;
mod tiles;

pub use tiles::{Tiles, TilesOnHost, kept_bytes};

/// Largest distances to the keys of its segment that a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Largest distance to a key before the query.
    pub before: usize,
    /// Largest distance to a key after the query.
    pub after: usize,
}

impl Reach {
    /// The whole segment.
    pub const ALL: Self = Self { before: usize::MAX, after: usize::MAX };

    /// At most `window` tokens to either side.
    pub fn window(window: usize) -> Self {
        Self { before: window, after: window }
    }

    /// The same without the keys after the query: causal attention.
    #[must_use]
    pub fn causal(self) -> Self {
        Self { after: 0, ..self }
    }

    /// Returns true if a query sees a key of its segment.
    pub fn sees(self, query: usize, key: usize) -> bool {
        if query > key { query - key <= self.before } else { key - query <= self.after }
    }
}

/// Partition of the tokens into segments, with the reach and the dropout of attention.
#[derive(Debug, Clone, Copy)]
pub struct Segments<'a> {
    /// Number of heads (H).
    pub heads: usize,
    /// Start of each segment, followed by `T`.
    pub cu_seqlens: Indices<'a>,
    /// Dropout key of each token, `[T]`.
    pub token_keys: Indices<'a, u64>,
    /// Keys that a token attends to.
    pub reach: Reach,
    /// Dropout of the probabilities.
    pub dropout: Option<&'a Dropout>,
}

/// Values that backward needs in addition to inputs and output.
#[derive(Debug, Clone)]
pub struct Saved {
    /// Log-sum-exp of the scores of each token and head, `[T, H]`.
    pub(crate) log_sum_exp_th: Tensor,
    /// Dropout decisions of a GPU's forward pass, a bit per probability: u32 `[H, squares, 8]`, see
    /// `kept_at` in `arguments.cuh`. `None` without dropout, and on the CPU.
    pub(crate) kept: Option<Tensor>,
}

/// Computes the attention output `[T, D]` and the values that backward needs in addition to `q`, `k`, `v` and
/// the output.
pub fn forward(
    q_td: &Tensor,
    k_td: &Tensor,
    v_td: &Tensor,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    check(&[q_td, k_td, v_td], segments)?;
    match Gpu::of(q_td)? {
        None => by_dtype!("attention", q_td, T => cpu::forward::<T>([q_td, k_td, v_td], segments, None)),
        Some(gpu) => cuda::forward(&gpu, q_td, k_td, v_td, segments),
    }
}

/// Inputs and output of the forward pass, which backward needs.
#[derive(Debug, Clone, Copy)]
pub struct Activations<'a> {
    /// Queries, `[T, D]`.
    pub q_td: &'a Tensor,
    /// Keys, `[T, D]`.
    pub k_td: &'a Tensor,
    /// Values, `[T, D]`.
    pub v_td: &'a Tensor,
    /// Output, `[T, D]`.
    pub o_td: &'a Tensor,
}

/// Computes the gradients of queries, keys and values, each `[T, D]`.
pub fn backward(
    do_td: &Tensor,
    activations: Activations<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<[Tensor; 3]> {
    let Activations { q_td, k_td, v_td, o_td } = activations;
    check(&[do_td, q_td, k_td, v_td, o_td], segments)?;
    match Gpu::of(q_td)? {
        None => by_dtype!("attention", do_td, T => {
            cpu::backward::<T>(do_td, activations, saved, segments, None)
        }),
        Some(gpu) => cuda::backward(&gpu, do_td, activations, saved, segments),
    }
}

/// Fails unless the tensors have the same shape and fit the heads and segments.
pub(crate) fn check(tensors: &[&Tensor], segments: &Segments<'_>) -> Result<()> {
    let (tokens, hidden) = tensors[0].dims2()?;
    if let Some(other) = tensors.iter().find(|t| t.dims() != [tokens, hidden]) {
        bail!("attention: shapes {:?} and {:?} differ", tensors[0].shape(), other.shape());
    }
    let Segments { heads, cu_seqlens, token_keys, .. } = segments;
    if *heads == 0 || hidden % heads != 0 {
        bail!("attention: {heads} heads do not divide hidden size {hidden}");
    }
    let bounds = cu_seqlens.host();
    let keys = token_keys.len();
    let ordered = bounds.first() == Some(&0) && bounds.windows(2).all(|w| w[0] <= w[1]);
    if !ordered || bounds.last() != Some(&(tokens as u32)) || keys != tokens {
        bail!("attention: segments {bounds:?} with {keys} token keys do not cover {tokens} tokens");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
