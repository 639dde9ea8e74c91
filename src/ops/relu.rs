//! Bias and rectified linear unit, fused: the dense layer of DistilBERT's classification head.
//!
//! Forward: `y = max(x + bias, 0)`, with `x` and `y` of shape `[B, D]`. The caller saves `y`.
//!
//! Backward: `dx = dy` where `y > 0`, else 0; `dbias += sum over rows of dx` accumulates into the caller's
//! tensor.
//!
//! `x`, `y` and their gradients have one dtype: f32, bf16 or f16. The bias and its gradient are f32, and all
//! arithmetic is done in f32.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::{check_one_dtype, check_shape, check_vectors};

/// `y_bd = max(x_bd + bias_d, 0)`.
pub fn forward(x_bd: &Tensor, bias_d: Option<&Tensor>) -> Result<Tensor> {
    check_vectors("relu", &[("bias", bias_d)], x_bd.dims2()?.1)?;
    match Gpu::of(x_bd)? {
        None => by_dtype!("relu", x_bd, T => cpu::forward::<T>(x_bd, bias_d)),
        Some(gpu) => cuda::forward(&gpu, x_bd, bias_d),
    }
}

/// Returns `dx_bd`, from the output `y_bd`; adds to `dbias_d`, or overwrites it if nothing was added to it
/// yet.
pub fn backward<'a, D: Into<Accumulator<'a>>>(
    dy_bd: &Tensor,
    y_bd: &Tensor,
    dbias_d: Option<D>,
) -> Result<Tensor> {
    let dbias_d = dbias_d.map(Into::into);
    check_shape("relu: output gradient", dy_bd, y_bd.dims())?;
    check_vectors("relu", &[("bias gradient", dbias_d.map(|dbias| dbias.sum))], y_bd.dims2()?.1)?;
    check_one_dtype("relu", &[("the output", y_bd), ("the output gradient", dy_bd)])?;
    match Gpu::of(y_bd)? {
        None => by_dtype!("relu", y_bd, T => cpu::backward::<T>(dy_bd, y_bd, dbias_d)),
        Some(gpu) => cuda::backward(&gpu, dy_bd, y_bd, dbias_d),
    }
}
