//! The end of a sub-layer, fused: bias, dropout, residual connection and layer normalisation in one pass over
//! the rows.
//!
//! Forward: `s = residual + keep * (x + bias)`, `y = LN(s; weight, norm_bias, eps)`, with `keep` as in
//! [`crate::dropout`] and `LN` as in [`crate::layer_norm`]; all of `x`, `residual`, `s`, `y` are
//! `[T, D]`. Saved: `s` and the moments of its rows; on a GPU also the decisions of dropout, one bit for
//! each value, so that backward need not draw them again.
//!
//! Backward: `ds` is the gradient of `LN`, plus that of `s` where `s` itself is used beside its norm
//! (pre-norm); `dresidual = ds`, `dx = ds * keep`. With `n` the normalised `s`, `dbias += sum over t of dx`,
//! `dweight += sum over t of dy * n` and `dnorm_bias += sum over t of dy`: these three accumulate into what
//! the caller passes.
//!
//! `x`, `residual`, `s`, `y` and their gradients are of one type, f32, bf16 or f16; everything else is f32,
//! and so is the arithmetic. The norm is that of `s` as rounded to the type, forward as backward.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::layer_norm;
use crate::tensor::check_len;
use crate::tensor::check_one_dtype;
use crate::tensor::check_shape;
use crate::tensor::check_vectors;

/// What backward needs.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The sum that was normalised, `[T, D]`.
    pub sum_td: Tensor,
    /// The moments of its rows.
    pub moments: layer_norm::Saved,
    /// Decisions of dropout from the GPU's forward pass, as u32: whole bytes for each row, of which bit `c
    /// % 8` of byte `c / 8` keeps column `c`. `None` without dropout, and on the CPU.
    pub(crate) kept: Option<Tensor>,
}

/// Bytes of [`Saved::kept`] for `tokens` rows of `hidden` columns.
pub fn kept_bytes(tokens: u64, hidden: u64) -> u64 {
    (tokens * hidden.div_ceil(8)).next_multiple_of(size_of::<u32>() as u64)
}

/// The vectors of the forward pass, each `[D]`.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// Added to `x`, where there is one.
    pub bias: Option<&'a Tensor>,
    /// Scale of the norm.
    pub norm_weight: &'a Tensor,
    /// Shift of the norm, where there is one.
    pub norm_bias: Option<&'a Tensor>,
    /// Added to the variance.
    pub eps: f64,
}

/// Where the gradients of the vectors accumulate or begin, each `[D]`.
#[derive(Debug, Clone, Copy)]
pub struct WeightGradients<'a> {
    /// Of the bias, where there is one.
    pub dbias: Option<Accumulator<'a>>,
    /// Of the norm's scale.
    pub dnorm_weight: Accumulator<'a>,
    /// Of the norm's shift, where there is one.
    pub dnorm_bias: Option<Accumulator<'a>>,
}

/// `y_td` and what backward needs; `row_keys[t]` names row `t` for dropout and may be empty without dropout.
pub fn forward<'a>(
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Saved)> {
    let (row_keys, dropout) = (row_keys.into(), Dropout::active(dropout)?);
    let (tokens, hidden) = x_td.dims2()?;
    check_shape("residual norm: residual", residual_td, &[tokens, hidden])?;
    let Weights { bias, norm_weight, norm_bias, .. } = *weights;
    let vectors = [("bias", bias), ("weight", Some(norm_weight)), ("norm bias", norm_bias)];
    check_vectors("residual norm", &vectors, hidden)?;
    if dropout.is_some() {
        check_len("residual norm: row keys", row_keys.len(), tokens)?;
    }
    check_one_dtype("residual norm", &[("the input", x_td), ("the residual", residual_td)])?;
    match Gpu::of(x_td)? {
        None => {
            by_dtype!("residual norm", x_td, T => cpu::forward::<T>(x_td, residual_td, weights, row_keys.host(), dropout))
        }
        Some(gpu) => cuda::forward(&gpu, x_td, residual_td, weights, row_keys, dropout),
    }
}

/// `(dx_td, dresidual_td)` from the gradient of the output, and from that of the sum where the sum was used,
/// too; adds to the gradients in `into`.
///
/// Without dropout both are one and the same tensor: a caller that adds to `dresidual` in place must be done
/// with `dx`.
pub fn backward<'a>(
    dy_td: &Tensor,
    d_sum_td: Option<&Tensor>,
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let (row_keys, dropout) = (row_keys.into(), Dropout::active(dropout)?);
    let (tokens, hidden) = saved.sum_td.dims2()?;
    check_shape("residual norm: output gradient", dy_td, &[tokens, hidden])?;
    let vectors = [
        ("weight", Some(norm_weight_d)),
        ("bias gradient", into.dbias.map(|dbias| dbias.sum)),
        ("weight gradient", Some(into.dnorm_weight.sum)),
        ("norm bias gradient", into.dnorm_bias.map(|dbias| dbias.sum)),
    ];
    check_vectors("residual norm", &vectors, hidden)?;
    if dropout.is_some() {
        check_len("residual norm: row keys", row_keys.len(), tokens)?;
    }
    check_one_dtype("residual norm", &[("the saved sum", &saved.sum_td), ("the output gradient", dy_td)])?;
    if let Some(d_sum_td) = d_sum_td {
        check_shape("residual norm: gradient of the sum", d_sum_td, &[tokens, hidden])?;
        check_one_dtype("residual norm", &[("the output gradient", dy_td), ("that of the sum", d_sum_td)])?;
    }
    match Gpu::of(dy_td)? {
        None => {
            by_dtype!("residual norm", dy_td, T => cpu::backward::<T>(dy_td, d_sum_td, saved, norm_weight_d, into, row_keys.host(), dropout))
        }
        Some(gpu) => cuda::backward(&gpu, (dy_td, d_sum_td), saved, norm_weight_d, into, row_keys, dropout),
    }
}
