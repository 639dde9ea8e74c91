//! Elementwise sum of two tensors, for places where the addition cannot be fused into another op.
//!
//! `sum`: `y = a + b`, all of one type, f32, bf16 or f16, added in f32 and rounded once. `accumulate`:
//! `s += x`, or `s = x` if nothing was added to `s` yet; `s` is f32 and `x` of any of these types. The
//! gradient of a sum is also the gradient of each summand. Nothing is saved.

mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Result, Tensor};
use rayon::prelude::*;

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::element::{Element, by_dtype};
use crate::parallel::BLOCK_VALUES;
use crate::tensor::{check_one_dtype, check_shape, values, with_slice_mut};

/// `a + b`; both must have the same shape and dtype.
pub fn sum(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    check_shape("add: the second tensor", b, a.dims())?;
    check_one_dtype("add", &[("the first tensor", a), ("the second tensor", b)])?;
    match Gpu::of(a)? {
        None => a + b,
        Some(gpu) => cuda::sum(&gpu, a, b),
    }
}

/// Adds `x` to the sum `into`, or overwrites it if nothing was added to it yet.
pub fn accumulate(x: &Tensor, into: Accumulator<'_>) -> Result<()> {
    check_shape("add: the sum", into.sum, x.dims())?;
    match Gpu::of(x)? {
        None => by_dtype!("add", x, T => on_cpu::<T>(x, into)),
        Some(gpu) => cuda::accumulate(&gpu, x, into),
    }
}

/// A new sum that has the values of `x` in f32.
pub fn begun(x: &Tensor) -> Result<Tensor> {
    let sum = match Gpu::of(x)? {
        None => Tensor::zeros(x.dims(), DType::F32, x.device())?,
        Some(gpu) => gpu.uninitialised(x.dims(), DType::F32)?,
    };
    accumulate(x, Accumulator { sum: &sum, begun: false })?;
    Ok(sum)
}

fn on_cpu<T: Element>(x: &Tensor, Accumulator { sum, begun }: Accumulator<'_>) -> Result<()> {
    let x = values::<T>(x)?;
    with_slice_mut(sum, |sum| {
        sum.par_chunks_mut(BLOCK_VALUES).zip(x.par_chunks(BLOCK_VALUES)).for_each(|(sum, x)| {
            for (sum, x) in sum.iter_mut().zip(x) {
                *sum = if begun { *sum + x.widen() } else { x.widen() };
            }
        });
    })
}
