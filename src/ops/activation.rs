//! Bias and activation, fused: `y = F(x + bias)` for each value, with a bias for each column.
//!
//! Shapes: `x` and `y` are `[T, F]`. They and their gradients have one dtype: f32, bf16 or f16. The bias and
//! its gradient are f32, and all arithmetic is done in f32. The bias is optional.
//!
//! With `u = x + bias`, the functions and their derivatives are
//!
//! - GELU (Hendrycks and Gimpel 2016): `u * P(u)` and `P(u) + u * p(u)`, where
//!   `P(u) = (1 + erf(u / sqrt 2)) / 2` and `p(u) = P'(u) = exp(-u^2 / 2) / sqrt(2 pi)`;
//! - its approximation by tanh: the same with `P(u) = (1 + tanh z(u)) / 2 = 1 / (1 + exp(-2 z(u)))` and
//!   `p = 2 P (1 - P) z'`, where `z(u) = sqrt(2 / pi) * (u + 0.044715 u^3)` and
//!   `z'(u) = sqrt(2 / pi) * (1 + 0.134145 u^2)`;
//! - tanh: `y = tanh u` and `1 - y^2`;
//! - ReLU: `y = max(u, 0)` and 1 where `y > 0`, else 0.
//!
//! Backward: `dx = dy * F'(u)`; `dbias += sum over rows of dx` accumulates into the caller's tensor. The
//! caller saves `x` for both forms of GELU, and `y` for the other functions.

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

/// The function `F`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// GELU with the error function: `gelu` of Hugging Face.
    Gelu,
    /// GELU approximated by a hyperbolic tangent: `gelu_new` of Hugging Face.
    GeluTanh,
    /// Hyperbolic tangent.
    Tanh,
    /// Rectified linear unit.
    Relu,
}

impl Function {
    /// Returns true if backward needs the output instead of the input.
    pub fn saves_output(self) -> bool {
        matches!(self, Self::Tanh | Self::Relu)
    }

    /// Name of the function in errors.
    fn name(self) -> &'static str {
        match self {
            Self::Gelu | Self::GeluTanh => "gelu",
            Self::Tanh => "tanh",
            Self::Relu => "relu",
        }
    }
}

/// `y_tf = F(x_tf + bias_f)`.
pub fn forward(function: Function, x_tf: &Tensor, bias_f: Option<&Tensor>) -> Result<Tensor> {
    let name = function.name();
    check_vectors(name, &[("bias", bias_f)], x_tf.dims2()?.1)?;
    match Gpu::of(x_tf)? {
        None => by_dtype!(name, x_tf, T => cpu::forward::<T>(function, x_tf, bias_f)),
        Some(gpu) => cuda::forward(function, &gpu, x_tf, bias_f),
    }
}

/// Returns `dx_tf`; adds to `dbias_f`, or overwrites it if nothing was added to it yet.
///
/// `saved_tf` is the output if [`Function::saves_output`], and `bias_f` is ignored then. Else it is the
/// input.
pub fn backward<'a, D: Into<Accumulator<'a>>>(
    function: Function,
    dy_tf: &Tensor,
    saved_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<D>,
) -> Result<Tensor> {
    backward_compiled(function, dy_tf, saved_tf, bias_f, dbias_f.map(Into::into))
}

fn backward_compiled(
    function: Function,
    dy_tf: &Tensor,
    saved_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let name = function.name();
    let bias_f = bias_f.filter(|_| !function.saves_output());
    check_shape(&format!("{name}: output gradient"), dy_tf, saved_tf.dims())?;
    let bias_gradient = dbias_f.map(|dbias| dbias.sum);
    check_vectors(name, &[("bias", bias_f), ("bias gradient", bias_gradient)], saved_tf.dims2()?.1)?;
    let saved = if function.saves_output() { "the output" } else { "the input" };
    check_one_dtype(name, &[(saved, saved_tf), ("the output gradient", dy_tf)])?;
    match Gpu::of(saved_tf)? {
        None => {
            by_dtype!(name, saved_tf, T => cpu::backward::<T>(function, dy_tf, saved_tf, bias_f, dbias_f))
        }
        Some(gpu) => cuda::backward(function, &gpu, dy_tf, saved_tf, bias_f, dbias_f),
    }
}
