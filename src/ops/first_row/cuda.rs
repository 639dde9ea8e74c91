//! The first row of each segment added to its rows on the GPU: a block takes some columns of a segment.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Address;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Grid;
use crate::ops::cuda::Kernel;
use crate::ops::indices::Indices;

const FORWARD: Kernel = Kernel { op: "first_row", name: "first_row_forward" };
const BACKWARD: Kernel = Kernel { op: "first_row", name: "first_row_backward" };
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
    run(gpu, FORWARD, x_td, cu_seqlens)
}

pub(super) fn backward(gpu: &Gpu, dy_td: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    run(gpu, BACKWARD, dy_td, cu_seqlens)
}

fn run(gpu: &Gpu, kernel: Kernel, from: &Tensor, cu_seqlens: Indices<'_>) -> Result<Tensor> {
    let (dtype, cols) = (from.dtype(), from.dims2()?.1);
    let to = gpu.uninitialised(from.dims(), dtype)?;
    let (bounds, _bounds) = cu_seqlens.on_gpu(gpu)?;
    let args = Args { from: gpu.input(from, dtype)?, bounds, to: gpu.output(&to, dtype)?, cols: cols as i64 };
    let blocks = [(cu_seqlens.len() - 1) as u32, cols.div_ceil(THREADS) as u32, 1];
    let grid = Grid { blocks, threads: THREADS as u32, shared_bytes: 0 };
    // SAFETY: both tensors have `cols` columns and a row for each token, which the bounds of the segments
    // cover.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    Ok(to)
}
