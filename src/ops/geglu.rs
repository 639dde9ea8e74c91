//! Gated GELU (Shazeer, "GLU Variants Improve Transformer", 2020), as in ModernBERT: GELU (see
//! [`crate::activation`]) of the first half of each row, multiplied by the second half, the gates.
//!
//! Forward: for `x` `[T, 2F]`, with `u = x[.., ..F]` and `g = x[.., F..]`, `y = u * Phi(u) * g` is `[T, F]`.
//! The caller saves `x`. There is no bias.
//!
//! Backward: `du = dy * g * (Phi(u) + u * phi(u))` and `dg = dy * u * Phi(u)` are the first and second half
//! of the rows of `dx` `[T, 2F]`. Nothing accumulates.
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

/// `y_tf = gelu(x_t2f[.., ..F]) * x_t2f[.., F..]`.
pub fn forward(x_t2f: &Tensor) -> Result<Tensor> {
    output_shape(x_t2f)?;
    match Gpu::of(x_t2f)? {
        None => by_dtype!("geglu", x_t2f, T => cpu::forward::<T>(x_t2f)),
        Some(gpu) => cuda::forward(&gpu, x_t2f),
    }
}

/// Returns `dx_t2f`.
pub fn backward(dy_tf: &Tensor, x_t2f: &Tensor) -> Result<Tensor> {
    check_shape("geglu: output gradient", dy_tf, &output_shape(x_t2f)?)?;
    check_one_dtype("geglu", &[("the input", x_t2f), ("the output gradient", dy_tf)])?;
    match Gpu::of(x_t2f)? {
        None => by_dtype!("geglu", x_t2f, T => cpu::backward::<T>(dy_tf, x_t2f)),
        Some(gpu) => cuda::backward(&gpu, dy_tf, x_t2f),
    }
}

/// The shape `[T, F]` of the output; an error if rows have an odd length.
fn output_shape(x_t2f: &Tensor) -> Result<[usize; 2]> {
    let (tokens, cols) = x_t2f.dims2()?;
    if !cols.is_multiple_of(2) {
        bail!("geglu: rows of {cols} values do not fall into two halves");
    }
    Ok([tokens, cols / 2])
}
