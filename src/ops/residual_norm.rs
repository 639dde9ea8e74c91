//! The end of a sub-layer, fused: bias, dropout, residual connection and layer normalisation or RMSNorm in
//! one pass over the rows.
//!
//! Forward: `s = residual + keep * (x + bias)`, `y = LN(s; weight, norm_bias, eps)`, with `keep` as in
//! [`crate::dropout`] and `LN` as in [`crate::layer_norm`]; all of `x`, `residual`, `s`, `y` are `[T, D]`.
//! Saved: `s` and the moments of its rows; on a GPU also the decisions of dropout, one bit for each value, so
//! that backward need not compute them again.
//!
//! Backward: `ds` is the gradient of `LN` with respect to `s`, plus the gradient of `s` itself if `s` is used
//! in addition to its norm (pre-norm models). `dresidual = ds`, `dx = ds * keep`. With `n` the normalised
//! `s`, `dbias += sum over t of dx`, `dweight += sum over t of dy * n` and `dnorm_bias += sum over t of dy`:
//! these three accumulate into the caller's tensors.
//!
//! `x`, `residual`, `s`, `y` and their gradients have one dtype: f32, bf16 or f16. All else is f32, and all
//! arithmetic is done in f32. Both forward and backward normalise `s` after it was rounded to the dtype.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::layer_norm;
use crate::tensor::{check_len, check_one_dtype, check_shape, check_vectors};

/// The values that backward needs.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The sum that was normalised, `[T, D]`.
    pub sum_td: Tensor,
    /// The moments of its rows.
    pub moments: layer_norm::Saved,
    /// Decisions of dropout from the GPU's forward pass, as u32. Each row has whole bytes; bit `c % 8` of
    /// byte `c / 8` is 1 if column `c` is kept. `None` without dropout, and on the CPU.
    pub(crate) kept: Option<Tensor>,
}

/// Bytes of [`Saved::kept`] for `tokens` rows of `hidden` columns.
pub fn kept_bytes(tokens: u64, hidden: u64) -> u64 {
    (tokens * hidden.div_ceil(8)).next_multiple_of(size_of::<u32>() as u64)
}

/// The vectors of the forward pass, each `[D]`.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// The bias that is added to `x`; optional.
    pub bias: Option<&'a Tensor>,
    /// The weight of the norm.
    pub norm_weight: &'a Tensor,
    /// The bias of the norm; optional.
    pub norm_bias: Option<&'a Tensor>,
    /// Added to the variance.
    pub eps: f64,
    /// The form of the norm.
    pub form: layer_norm::Form,
}

/// The gradients of the vectors, each `[D]`, to which backward adds.
#[derive(Debug, Clone, Copy)]
pub struct WeightGradients<'a> {
    /// Gradient of the bias; `None` if there is no bias.
    pub dbias: Option<Accumulator<'a>>,
    /// Gradient of the norm's weight.
    pub dnorm_weight: Accumulator<'a>,
    /// Gradient of the norm's bias; `None` if there is no such bias.
    pub dnorm_bias: Option<Accumulator<'a>>,
}

/// The gradients that flow into backward.
#[derive(Clone, Copy)]
struct OutputGradients<'a> {
    /// Gradient of the output `y`.
    dy_td: &'a Tensor,
    /// Gradient of the sum `s`, if the sum itself was used, too.
    d_sum_td: Option<&'a Tensor>,
}

/// Returns `y_td`, and the values to save for backward. `row_keys[t]` is the dropout key of row `t`; the keys
/// may be empty without dropout.
pub fn forward<'a>(
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Saved)> {
    forward_compiled(x_td, residual_td, weights, row_keys.into(), dropout)
}

fn forward_compiled(
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    row_keys: Indices<'_, u64>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Saved)> {
    let dropout = Dropout::active(dropout)?;
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

/// Returns `(dx_td, dresidual_td)`, and adds to the gradients in `into`. `dy_td` is the gradient of the
/// output, `d_sum_td` that of the sum if the sum itself was used, too.
///
/// Without dropout, both results share one memory: a caller may add to `dresidual` in place only when it no
/// longer needs `dx`.
pub fn backward<'a>(
    dy_td: &Tensor,
    d_sum_td: Option<&Tensor>,
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: impl Into<Indices<'a, u64>>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    backward_compiled(dy_td, d_sum_td, saved, norm_weight_d, into, row_keys.into(), dropout)
}

fn backward_compiled(
    dy_td: &Tensor,
    d_sum_td: Option<&Tensor>,
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: Indices<'_, u64>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let dropout = Dropout::active(dropout)?;
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
        Some(gpu) => {
            let gradients = OutputGradients { dy_td, d_sum_td };
            cuda::backward(&gpu, gradients, saved, norm_weight_d, into, row_keys, dropout)
        }
    }
}
