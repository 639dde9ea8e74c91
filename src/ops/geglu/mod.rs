//! Gated GELU (Shazeer, "GLU Variants Improve Transformer", 2020), as ModernBERT has it: one half of a row
//! goes through GELU (see [`crate::gelu`]), the other half multiplies it.
//!
//! Forward: of `x` `[T, 2F]`, `u = x[.., ..F]` and `g = x[.., F..]`; `y = u * Phi(u) * g`, `[T, F]`. Saved by
//! the caller: `x`. There is no bias.
//!
//! Backward: `du = dy * g * (Phi(u) + u * phi(u))` and `dg = dy * u * Phi(u)`, side by side in `dx` `[T,
//! 2F]`. Nothing accumulates.
//!
//! `x`, `y` and their gradients are of one type, f32, bf16 or f16; the arithmetic is f32.

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
use crate::tensor::check_one_dtype;
use crate::tensor::check_shape;

/// `y_tf = gelu(x_t2f[.., ..F]) * x_t2f[.., F..]`.
pub fn forward(x_t2f: &Tensor) -> Result<Tensor> {
    halves(x_t2f)?;
    match Gpu::of(x_t2f)? {
        None => by_dtype!("geglu", x_t2f, T => cpu::forward::<T>(x_t2f)),
        Some(gpu) => cuda::forward(&gpu, x_t2f),
    }
}

/// `dx_t2f`.
pub fn backward(dy_tf: &Tensor, x_t2f: &Tensor) -> Result<Tensor> {
    check_shape("geglu: output gradient", dy_tf, &halves(x_t2f)?)?;
    check_one_dtype("geglu", &[("the input", x_t2f), ("the output gradient", dy_tf)])?;
    match Gpu::of(x_t2f)? {
        None => by_dtype!("geglu", x_t2f, T => cpu::backward::<T>(dy_tf, x_t2f)),
        Some(gpu) => cuda::backward(&gpu, dy_tf, x_t2f),
    }
}

/// The shape of the output.
fn halves(x_t2f: &Tensor) -> Result<[usize; 2]> {
    let (tokens, cols) = x_t2f.dims2()?;
    if !cols.is_multiple_of(2) {
        bail!("geglu: rows of {cols} values do not fall into two halves");
    }
    Ok([tokens, cols / 2])
}
