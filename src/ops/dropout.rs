//! Dropout whose mask is a pure function of (stream, row key, column): the mask is not stored, backward
//! computes it again.
//!
//! Forward: `y[t, c] = x[t, c] * keep(t, c)`, where `keep` is 0 with probability `p` and otherwise
//! `1 / (1 - p)`. Backward: `dx[t, c] = dy[t, c] * keep(t, c)`. Nothing is saved. Without dropout, or with
//! `p = 0`, the op is the identity. `x` and `y` are f32, bf16 or f16; the product is computed in f32 and
//! rounded once.
//!
//! The decision for column `c` of the row with key `r`: the stream has four 32-bit words at index
//! `r << 16 | c / 8`. Word `w` contains the 16-bit lanes `2w` (low half) and `2w + 1` (high half). The
//! element is dropped if lane `c % 8` is below `round(p * 65536)`. The key identifies the token (in
//! attention, the token and the head), not its place in the batch, so the mask does not depend on how rows
//! are packed, split into micro-batches or spread over threads.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::tensor::check_len;
use base::rng::Stream;

pub(crate) use cuda::DropoutArgs;

/// Dropout at one site of the model in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The probability of dropping an element, in `[0, 1)`; it is rounded to a multiple of 1/65536.
    pub probability: f32,
    /// The random stream of this step and site.
    pub stream: Stream,
}

impl Dropout {
    /// The probability in units of 1/65536; a 16-bit lane below it drops its element.
    #[inline]
    pub fn threshold(&self) -> u32 {
        (self.probability * 65536.0).round() as u32
    }

    /// The factor of values that are kept: the inverse of the (rounded) probability of keeping an element.
    #[inline]
    pub fn scale(&self) -> f32 {
        65536.0 / (65536 - self.threshold().min(65535)) as f32
    }

    /// Writes 0 or [`Self::scale`] for the columns `0..factors.len()` of the row with key `row_key`. Call
    /// this inside [`crate::simd::kernel`], where it becomes one vectorised loop.
    #[inline(always)]
    pub fn keep_row(&self, row_key: u64, factors: &mut [f32]) {
        self.keep_columns(row_key, 0, factors);
    }

    /// Like [`Self::keep_row`], for the columns `first..first + factors.len()`; `first` must be a multiple of
    /// 8.
    #[inline(always)]
    pub fn keep_columns(&self, row_key: u64, first: usize, factors: &mut [f32]) {
        debug_assert!(first.is_multiple_of(8), "{first}");
        debug_assert!(row_key >> 48 == 0, "{row_key}: 16 of the counter's 64 bits name the columns");
        cpu::keep_columns(self, row_key, first, factors);
    }

    /// Returns `dropout` if it drops anything, else `None`; an error unless its probability is in `[0, 1)`.
    pub fn active(dropout: Option<&Self>) -> Result<Option<&Self>> {
        match dropout {
            Some(d) if !(0.0..1.0).contains(&d.probability) => {
                bail!("dropout: the probability {} is not in [0, 1)", d.probability)
            }
            Some(d) if d.threshold() == 0 => Ok(None),
            other => Ok(other),
        }
    }
}

/// `y_td = x_td * keep`, with `row_keys[t]` the key of row `t`; returns `x_td` itself if nothing is dropped.
pub fn forward<'a>(
    x_td: &Tensor,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<Tensor> {
    forward_compiled(x_td, row_keys.into(), dropout)
}

fn forward_compiled(x_td: &Tensor, row_keys: Indices<'_, u64>, dropout: Option<&Dropout>) -> Result<Tensor> {
    let Some(dropout) = Dropout::active(dropout)? else { return Ok(x_td.clone()) };
    check_len("dropout: row keys", row_keys.len(), x_td.dims2()?.0)?;
    match Gpu::of(x_td)? {
        None => by_dtype!("dropout", x_td, T => cpu::apply::<T>(x_td, row_keys.host(), dropout)),
        Some(gpu) => cuda::apply(&gpu, x_td, row_keys, dropout),
    }
}

/// `dx_td = dy_td * keep`, with the mask computed again from the same arguments as in [`forward`].
pub fn backward<'a>(
    dy_td: &Tensor,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<Tensor> {
    forward(dy_td, row_keys, dropout)
}
