//! Rotary position embedding (Su et al., "RoFormer", 2021), with heads split into halves as in Llama and
//! ModernBERT (`rotate_half` in transformers): queries and keys are rotated by angles proportional to their
//! position.
//!
//! For a token at position `p` of its segment, columns `j` and `j + K / 2` of each head are a pair, which is
//! rotated by the angle `a = p * theta^(-2 j / K)`:
//!
//! ```text
//! y[j] = x[j] cos a - x[j + K / 2] sin a      y[j + K / 2] = x[j + K / 2] cos a + x[j] sin a
//! ```
//!
//! So the product of a query with a key depends only on the distance of their positions. Backward rotates the
//! gradient by `-a`. Both work in place on `[T, D]`; head `h` has the columns `h K .. (h + 1) K`. Nothing is
//! saved, and nothing accumulates.
//!
//! `x` is f32, bf16 or f16. The angles, their cosines and sines (see [`Angles`]) and the arithmetic are f32;
//! the result is rounded once.

mod angles;
mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;

pub use angles::Angles;

/// The direction of the rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// By the angles, for queries and keys.
    Forward,
    /// By the negative angles, for the gradients of queries and keys.
    Backward,
}

impl Direction {
    /// The factor of the sines.
    fn sign(self) -> f32 {
        match self {
            Self::Forward => 1.0,
            Self::Backward => -1.0,
        }
    }
}

/// Rotates the pairs of all heads of `x_td` in place; `cu_seqlens` has the start of each segment, then `T`.
pub fn rotate(
    x_td: &Tensor,
    heads: usize,
    cu_seqlens: Indices<'_>,
    angles: &Angles,
    direction: Direction,
) -> Result<()> {
    let (tokens, hidden) = x_td.dims2()?;
    let head_size = angles.head_size();
    if head_size == 0 || !head_size.is_multiple_of(2) {
        bail!("rotary: the {head_size} columns of a head do not fall into pairs");
    }
    if heads * head_size != hidden {
        bail!("rotary: {heads} heads of {head_size} columns do not make up hidden size {hidden}");
    }
    let bounds = cu_seqlens.host();
    let ordered = bounds.first() == Some(&0) && bounds.windows(2).all(|w| w[0] <= w[1]);
    if !ordered || bounds.last() != Some(&(tokens as u32)) {
        bail!("rotary: segments {bounds:?} do not cover {tokens} tokens");
    }
    let longest = bounds.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    if longest == 0 {
        return Ok(());
    }
    let table_pk = angles.table(longest as usize, x_td.device())?;
    match Gpu::of(x_td)? {
        None => by_dtype!("rotary", x_td, T => cpu::rotate::<T>(x_td, bounds, &table_pk, direction.sign())),
        Some(gpu) => cuda::rotate(&gpu, x_td, cu_seqlens, &table_pk, direction.sign()),
    }
}
