//! Bias and GELU (Hendrycks and Gimpel 2016), fused: the erf form (`gelu` in Hugging Face) or its tanh
//! approximation (`gelu_new` in Hugging Face).
//!
//! Forward: `u = x + bias`, `y = u * P(u)`; `x` and `y` are `[T, F]`. In the erf form,
//! `P(u) = Phi(u) = (1 + erf(u / sqrt 2)) / 2`; in the tanh form, `P(u) = (1 + tanh z(u)) / 2` with
//! `z(u) = sqrt(2 / pi) * (u + 0.044715 u^3)`. The caller saves `x`, the output of the matrix product before,
//! without the bias.
//!
//! Backward: `dx = dy * (P(u) + u * p(u))` with `p = P'`, which is `exp(-u^2 / 2) / sqrt(2 pi)` in the erf
//! form, and `2 P (1 - P) * z'` with `z' = sqrt(2 / pi) * (1 + 0.134145 u^2)` and `P = 1 / (1 + exp(-2 z))`
//! in the tanh form. `dbias += sum over t of dx` accumulates into the caller's tensor. The bias is optional.
//!
//! `x`, `y` and their gradients have one dtype: f32, bf16 or f16. The bias and its gradient are f32, and all
//! arithmetic is done in f32.

pub(crate) mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::{check_one_dtype, check_shape, check_vectors};

/// The formula of `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The cumulative distribution function of the standard normal distribution.
    Erf,
    /// The approximation of that function with a hyperbolic tangent.
    Tanh,
}

/// `y_tf = gelu(x_tf + bias_f)`.
pub fn forward(form: Form, x_tf: &Tensor, bias_f: Option<&Tensor>) -> Result<Tensor> {
    check_vectors("gelu", &[("bias", bias_f)], x_tf.dims2()?.1)?;
    match Gpu::of(x_tf)? {
        None => by_dtype!("gelu", x_tf, T => cpu::forward::<T>(form, x_tf, bias_f)),
        Some(gpu) => cuda::forward(form, &gpu, x_tf, bias_f),
    }
}

/// Returns `dx_tf`; adds to `dbias_f`, or overwrites it if nothing was added to it yet.
pub fn backward<'a, D: Into<Accumulator<'a>>>(
    form: Form,
    dy_tf: &Tensor,
    x_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<D>,
) -> Result<Tensor> {
    let dbias_f = dbias_f.map(Into::into);
    check_shape("gelu: output gradient", dy_tf, x_tf.dims())?;
    check_vectors(
        "gelu",
        &[("bias", bias_f), ("bias gradient", dbias_f.map(|dbias| dbias.sum))],
        x_tf.dims2()?.1,
    )?;
    check_one_dtype("gelu", &[("the input", x_tf), ("the output gradient", dy_tf)])?;
    match Gpu::of(x_tf)? {
        None => by_dtype!("gelu", x_tf, T => cpu::backward::<T>(form, dy_tf, x_tf, bias_f, dbias_f)),
        Some(gpu) => cuda::backward(form, &gpu, dy_tf, x_tf, bias_f, dbias_f),
    }
}
