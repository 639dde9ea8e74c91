//! The mean of each segment on the GPU: a block takes some columns of a segment.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Gpu;
use crate::ops::cuda::Kernel;
use crate::ops::cuda::segments;
use crate::ops::indices::Indices;

const FORWARD: Kernel = Kernel { op: "segment_mean", name: "segment_mean_forward" };
const BACKWARD: Kernel = Kernel { op: "segment_mean", name: "segment_mean_backward" };

pub(super) fn forward(gpu: &Gpu, x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    // SAFETY: `x_td` has a row for each token, which the bounds of the segments cover, and one row is made for
    // each segment.
    unsafe { segments::launch(gpu, FORWARD, x_td, cu_seqlens, cu_seqlens.len() - 1) }
}

pub(super) fn backward(gpu: &Gpu, dy_md: &Tensor, cu_seqlens: Indices<'_>, tokens: usize) -> Result<Tensor> {
    // SAFETY: `dy_md` has a row for each segment, and one is made for each token.
    unsafe { segments::launch(gpu, BACKWARD, dy_md, cu_seqlens, tokens) }
}
