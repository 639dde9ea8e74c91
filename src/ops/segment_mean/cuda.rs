//! The mean of each segment on the GPU; one block processes some columns of a segment.

use candle_core::{Result, Tensor};

use crate::cuda::{Gpu, Kernel, segments};
use crate::indices::Indices;

const FORWARD: Kernel = Kernel { op: "segment_mean", name: "segment_mean_forward" };
const BACKWARD: Kernel = Kernel { op: "segment_mean", name: "segment_mean_backward" };

pub(super) fn forward(gpu: &Gpu, x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    run(gpu, FORWARD, x_td, cu_seqlens, cu_seqlens.len() - 1)
}

pub(super) fn backward(gpu: &Gpu, dy_md: &Tensor, cu_seqlens: Indices<'_>, tokens: usize) -> Result<Tensor> {
    run(gpu, BACKWARD, dy_md, cu_seqlens, tokens)
}

/// Launches `kernel` and returns its output, which has `rows` rows.
fn run(gpu: &Gpu, kernel: Kernel, from: &Tensor, cu_seqlens: Indices<'_>, rows: usize) -> Result<Tensor> {
    let (bounds, _bounds) = cu_seqlens.on_gpu(gpu)?;
    // SAFETY: one of the input and the output has one row for each token, and the other one row for each
    // segment; the bounds of the segments were checked to cover the tokens.
    unsafe { segments::launch(gpu, kernel, from, (bounds, cu_seqlens.len() - 1), rows) }
}
