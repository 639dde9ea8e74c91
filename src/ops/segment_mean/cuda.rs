//! The mean of each segment on the GPU: a block takes some columns of a segment.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Address;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Grid;
use crate::ops::cuda::Kernel;
use crate::ops::indices::Indices;

const FORWARD: Kernel = Kernel { op: "segment_mean", name: "segment_mean_forward" };
const BACKWARD: Kernel = Kernel { op: "segment_mean", name: "segment_mean_backward" };
/// Threads of a block, each for a column.
const THREADS: usize = 128;

/// Twin of `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    from: Address,
    bounds: Address,
    to: Address,
    cols: i64,
}

pub(super) fn forward(gpu: &Gpu, x_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    run(gpu, FORWARD, x_td, cu_seqlens, cu_seqlens.len() - 1)
}

pub(super) fn backward(gpu: &Gpu, dy_md: &Tensor, cu_seqlens: Indices<'_>, tokens: usize) -> Result<Tensor> {
    run(gpu, BACKWARD, dy_md, cu_seqlens, tokens)
}

/// Makes `rows` rows of the segments.
fn run(gpu: &Gpu, kernel: Kernel, from: &Tensor, cu_seqlens: Indices<'_>, rows: usize) -> Result<Tensor> {
    let (dtype, cols) = (from.dtype(), from.dims2()?.1);
    let to = gpu.uninitialised((rows, cols), dtype)?;
    let (bounds, _bounds) = cu_seqlens.on_gpu(gpu)?;
    let args = Args { from: gpu.input(from, dtype)?, bounds, to: gpu.output(&to, dtype)?, cols: cols as i64 };
    let blocks = [(cu_seqlens.len() - 1) as u32, cols.div_ceil(THREADS) as u32, 1];
    let grid = Grid { blocks, threads: THREADS as u32, shared_bytes: 0 };
    // SAFETY: forward, `from` has a row for each token, which the bounds of the segments cover, and `to` one
    // for each segment; backward it is the other way round. Both have `cols` columns.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    Ok(to)
}
