//! The mean of the rows of each segment: the input of a classifier with mean pooling.
//!
//! Forward: `y[m] = 1 / n_m * sum over t in segment m of x[t]`, with `n_m` the number of rows of segment `m`;
//! `x` is `[T, D]`, `y` is `[M, D]`. The mean of an empty segment is 0. Only the bounds of the segments are
//! saved. Backward: `dx[t] = dy[m] / n_m` for the segment `m` of row `t`. Nothing accumulates.
//!
//! `x`, `y` and their gradients have one dtype: f32, bf16 or f16. Sums are computed in f32, in the order of
//! the rows, and rounded once.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::tensor::check_len;

/// Returns `y_md`; `cu_seqlens` has the start of each segment, then `T`.
pub fn forward(x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    check(cu_seqlens, x_td.dims2()?.0)?;
    match Gpu::of(x_td)? {
        None => by_dtype!("segment mean", x_td, T => cpu::forward::<T>(x_td, cu_seqlens.host())),
        Some(gpu) => cuda::forward(&gpu, x_td, cu_seqlens),
    }
}

/// Returns `dx_td`, where `T` is the last value of `cu_seqlens`.
pub fn backward(dy_md: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    let tokens = cu_seqlens.host().last().copied().unwrap_or(0) as usize;
    check(cu_seqlens, tokens)?;
    check_len("segment mean: segments", cu_seqlens.len() - 1, dy_md.dims2()?.0)?;
    match Gpu::of(dy_md)? {
        None => by_dtype!("segment mean", dy_md, T => cpu::backward::<T>(dy_md, cu_seqlens.host(), tokens)),
        Some(gpu) => cuda::backward(&gpu, dy_md, cu_seqlens, tokens),
    }
}

fn check(cu_seqlens: Indices<'_>, tokens: usize) -> Result<()> {
    let bounds = cu_seqlens.host();
    let ordered = bounds.first() == Some(&0) && bounds.windows(2).all(|w| w[0] <= w[1]);
    if !ordered || bounds.last() != Some(&(tokens as u32)) {
        bail!("segment mean: segments {bounds:?} do not cover {tokens} tokens");
    }
    Ok(())
}
