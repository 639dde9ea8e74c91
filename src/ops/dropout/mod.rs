//! Dropout whose mask is a pure function of (stream, row key, column): nothing is stored, backward draws it
//! again.
//!
//! Forward: `y[t, c] = x[t, c] * keep(t, c)`, where `keep` is 0 with probability `p` and otherwise `1 / (1 -
//! p)`. Backward: `dx[t, c] = dy[t, c] * keep(t, c)`. Nothing is saved. No probability, or one of 0, is the
//! identity. `x` and `y` are f32, bf16 or f16; the product is f32, rounded once.
//!
//! The decision for column `c` of the row with key `r`: of the four 32-bit words of the stream at index
//! `r << 16 | c / 8`, word `w` holds the 16-bit lanes `2w` (low half) and `2w + 1` (high half); lane `c % 8`
//! below `round(p * 65536)` drops the element. The key names the token (and the head, in attention), not its
//! place in the batch, so that how rows are packed, split into micro-batches or spread over threads changes
//! nothing.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

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
    /// The stream of this step and site.
    pub stream: Stream,
}

impl Dropout {
    /// Lanes below this drop their element: the probability in units of 1/65536.
    #[inline]
    pub fn threshold(&self) -> u32 {
        (self.probability * 65536.0).round() as u32
    }

    /// What kept values are multiplied by: the inverse of the probability, as rounded, of being kept.
    #[inline]
    pub fn scale(&self) -> f32 {
        65536.0 / (65536 - self.threshold().min(65535)) as f32
    }

    /// Writes 0 or [`Self::scale`] for the columns `0..factors.len()` of the row `row_key`. Call it inside
    /// [`crate::simd::kernel`]: it is one vectorised loop.
    #[inline(always)]
    pub fn keep_row(&self, row_key: u64, factors: &mut [f32]) {
        self.keep_columns(row_key, 0, factors);
    }

    /// As [`Self::keep_row`] for the columns from `first` on, which must be a multiple of 8.
    #[inline(always)]
    pub fn keep_columns(&self, row_key: u64, first: usize, factors: &mut [f32]) {
        debug_assert!(first.is_multiple_of(8), "{first}");
        debug_assert!(row_key >> 48 == 0, "{row_key}: 16 of the counter's 64 bits name the columns");
        cpu::keep_columns(self, row_key, first, factors);
    }

    /// `dropout` if it drops anything; an error unless its probability is in `[0, 1)`.
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

/// `y_td = x_td * keep`, with `row_keys[t]` the key of row `t`; the same tensor when nothing is dropped.
pub fn forward<'a>(
    x_td: &Tensor,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<Tensor> {
    let Some(dropout) = Dropout::active(dropout)? else { return Ok(x_td.clone()) };
    let row_keys = row_keys.into();
    check_len("dropout: row keys", row_keys.len(), x_td.dims2()?.0)?;
    match Gpu::of(x_td)? {
        None => by_dtype!("dropout", x_td, T => cpu::apply::<T>(x_td, row_keys.host(), dropout)),
        Some(gpu) => cuda::apply(&gpu, x_td, row_keys, dropout),
    }
}

/// `dx_td = dy_td * keep`, the mask drawn again from the same arguments as in [`forward`].
pub fn backward<'a>(
    dy_td: &Tensor,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<Tensor> {
    forward(dy_td, row_keys, dropout)
}
