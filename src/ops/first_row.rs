//! Adds the first row of each segment to all of its rows: the input of DeBERTa's replaced-token detection
//! head.
//!
//! Forward: `y[t] = x[t] + x[f(t)]`, with `f(t)` the first row of the segment of row `t`; `x` and `y` are
//! `[T, D]`. Only the bounds of the segments are saved. Backward: `dx[t] = dy[t]`, and for the first row `f`
//! of a segment, `dx[f] = dy[f] + sum over its rows t of dy[t]`. Nothing accumulates.
//!
//! `x`, `y` and their gradients have one dtype: f32, bf16 or f16. Sums are f32, added in the order of the
//! rows.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::indices::Indices;

/// Returns `y_td`; `cu_seqlens` has the start of each segment, then `T`.
pub fn forward(x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    check(x_td, cu_seqlens)?;
    match Gpu::of(x_td)? {
        None => cpu::forward(x_td, cu_seqlens.host()),
        Some(gpu) => cuda::forward(&gpu, x_td, cu_seqlens),
    }
}

/// Returns `dx_td`; `cu_seqlens` as in [`forward`].
pub fn backward(dy_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    check(dy_td, cu_seqlens)?;
    match Gpu::of(dy_td)? {
        None => cpu::backward(dy_td, cu_seqlens.host()),
        Some(gpu) => cuda::backward(&gpu, dy_td, cu_seqlens),
    }
}

fn check(rows_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<()> {
    let bounds = cu_seqlens.host();
    let tokens = rows_td.dims2()?.0;
    let ordered = bounds.first() == Some(&0) && bounds.windows(2).all(|w| w[0] <= w[1]);
    if !ordered || bounds.last() != Some(&(tokens as u32)) {
        bail!("first row: segments {bounds:?} do not cover {tokens} tokens");
    }
    Ok(())
}
