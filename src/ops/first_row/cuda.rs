//! Adds the first row of each segment to its rows on the GPU; one block processes some columns of a segment.

use candle_core::{Result, Tensor};

use crate::cuda::{Gpu, Kernel, segments};
use crate::indices::Indices;

const FORWARD: Kernel = Kernel { op: "first_row", name: "first_row_forward" };
const BACKWARD: Kernel = Kernel { op: "first_row", name: "first_row_backward" };

pub(super) fn forward(gpu: &Gpu, x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    run(gpu, FORWARD, x_td, cu_seqlens, x_td.dims2()?.0)
}

pub(super) fn backward(gpu: &Gpu, dy_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    run(gpu, BACKWARD, dy_td, cu_seqlens, dy_td.dims2()?.0)
}

/// Launches `kernel` and returns its output, which has `rows` rows.
fn run(gpu: &Gpu, kernel: Kernel, from: &Tensor, cu_seqlens: Indices<'_>, rows: usize) -> Result<Tensor> {
    let (bounds, _bounds) = cu_seqlens.on_gpu(gpu)?;
    // SAFETY: both matrices have one row for each token, and the bounds of the segments were checked to cover
    // the tokens.
    unsafe { segments::launch(gpu, kernel, from, (bounds, cu_seqlens.len() - 1), rows) }
}
