//! Adds to each token the first one of its segment: what DeBERTa's head for replaced tokens sees.
//!
//! Forward: `y[t] = x[t] + x[f(t)]`, `f(t)` the first row of the segment of row `t`; `x`, `y` `[T, D]`.
//! Nothing is saved but the bounds of the segments. Backward: `dx[t] = dy[t]`, and for the first row of a
//! segment `dx[f] = dy[f] + sum over its rows t of dy[t]`. Nothing accumulates.
//!
//! `x`, `y` and their gradients are of one type, f32, bf16 or f16; sums are f32, in the order of the rows.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::cuda::Gpu;
use crate::indices::Indices;

/// `y_td`; `cu_seqlens` is the start of each segment, and `T` at the end.
pub fn forward(x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    check(x_td, cu_seqlens)?;
    match Gpu::of(x_td)? {
        None => cpu::forward(x_td, cu_seqlens.host()),
        Some(gpu) => cuda::forward(&gpu, x_td, cu_seqlens),
    }
}

/// `dx_td`.
pub fn backward(dy_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    check(dy_td, cu_seqlens)?;
    match Gpu::of(dy_td)? {
        None => cpu::backward(dy_td, cu_seqlens.host()),
        Some(gpu) => cuda::backward(&gpu, dy_td, cu_seqlens),
    }
}

fn check(rows_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<()> {
    let (bounds, tokens) = (cu_seqlens.host(), rows_td.dims2()?.0);
    let ordered = bounds.first() == Some(&0) && bounds.windows(2).all(|w| w[0] <= w[1]);
    if !ordered || bounds.last() != Some(&(tokens as u32)) {
        bail!("first row: segments {bounds:?} do not cover {tokens} tokens");
    }
    Ok(())
}
