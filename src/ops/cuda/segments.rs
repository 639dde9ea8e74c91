//! Launches of kernels that go over segments of rows: see `kernels/segments.cuh`.

use candle_core::Result;
use candle_core::Tensor;

use super::Address;
use super::Gpu;
use super::Grid;
use super::Kernel;
use crate::ops::indices::Indices;

/// Threads of a block, each for a column.
const THREADS: usize = 128;

/// Twin of `Segments`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Segments {
    from: Address,
    bounds: Address,
    to: Address,
    cols: i64,
}

/// Makes `rows` rows of the segments of `from`.
///
/// # Safety
/// For a matrix with a row for each token, and one of `rows` rows of as many columns, the kernel keeps within both:
/// which of the two is read, it knows.
pub(in crate::ops) unsafe fn launch(
    gpu: &Gpu,
    kernel: Kernel,
    from: &Tensor,
    cu_seqlens: Indices<'_>,
    rows: usize,
) -> Result<Tensor> {
    let (dtype, cols) = (from.dtype(), from.dims2()?.1);
    let to = gpu.uninitialised((rows, cols), dtype)?;
    let (bounds, _bounds) = cu_seqlens.on_gpu(gpu)?;
    let (from, into) = (gpu.input(from, dtype)?, gpu.output(&to, dtype)?);
    let args = Segments { from, bounds, to: into, cols: cols as i64 };
    let blocks = [(cu_seqlens.len() - 1) as u32, cols.div_ceil(THREADS) as u32, 1];
    let grid = Grid { blocks, threads: THREADS as u32, shared_bytes: 0 };
    // SAFETY: the caller promises that the kernel keeps within both matrices.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    Ok(to)
}
