//! Gated activations (Shazeer, "GLU Variants Improve Transformer", 2020): a function of the first half of
//! each row, multiplied by the second half, the gates. With GELU (see [`crate::activation`]) it is the GEGLU
//! of ModernBERT, with SiLU the SwiGLU of Llama and NeoBERT.
//!
//! Forward: for `x` `[T, 2F]`, with `u = x[.., ..F]` and `g = x[.., F..]`, `y = u * P(u) * g` is `[T, F]`.
//! `P` is the distribution function of the normal distribution for GELU, and `1 / (1 + exp(-u))` for SiLU.
//! The caller saves `x`. There is no bias.
//!
//! Backward: `du = dy * g * (P(u) + u * P'(u))` and `dg = dy * u * P(u)` are the first and second half of the
//! rows of `dx` `[T, 2F]`. Nothing accumulates.
//!
//! `x`, `y` and their gradients have one dtype: f32, bf16 or f16. The arithmetic is done in f32.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::{check_one_dtype, check_shape};

/// The function of the first half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// GELU with the error function: GEGLU.
    Gelu,
    /// The sigmoid linear unit: SwiGLU.
    Silu,
}

impl Function {
    /// Name of the gated function in errors.
    fn name(self) -> &'static str {
        match self {
            Self::Gelu => "geglu",
            Self::Silu => "swiglu",
        }
    }
}

/// `y_tf = F(x_t2f[.., ..F]) * x_t2f[.., F..]`.
pub fn forward(function: Function, x_t2f: &Tensor) -> Result<Tensor> {
    output_shape(function, x_t2f)?;
    match Gpu::of(x_t2f)? {
        None => by_dtype!(function.name(), x_t2f, T => cpu::forward::<T>(function, x_t2f)),
        Some(gpu) => cuda::forward(function, &gpu, x_t2f),
    }
}

/// Returns `dx_t2f`.
pub fn backward(function: Function, dy_tf: &Tensor, x_t2f: &Tensor) -> Result<Tensor> {
    let name = function.name();
    check_shape(&format!("{name}: output gradient"), dy_tf, &output_shape(function, x_t2f)?)?;
    check_one_dtype(name, &[("the input", x_t2f), ("the output gradient", dy_tf)])?;
    match Gpu::of(x_t2f)? {
        None => by_dtype!(name, x_t2f, T => cpu::backward::<T>(function, dy_tf, x_t2f)),
        Some(gpu) => cuda::backward(function, &gpu, dy_tf, x_t2f),
    }
}

/// The shape `[T, F]` of the output; an error if rows have an odd length.
fn output_shape(function: Function, x_t2f: &Tensor) -> Result<[usize; 2]> {
    let (tokens, cols) = x_t2f.dims2()?;
    if !cols.is_multiple_of(2) {
        bail!("{}: rows of {cols} values do not fall into two halves", function.name());
    }
    Ok([tokens, cols / 2])
}
