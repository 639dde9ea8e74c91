//! Launches of kernels that go over segments of rows: see `kernels/segments.cuh`.

use candle_core::Result;
use candle_core::Tensor;

use super::Address;
use super::Gpu;
use super::Grid;
use super::Kernel;

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

/// Makes `rows` rows of `from`, whose tokens `bounds` shares out to so many segments.
///
/// # Safety
/// There is a bound more than segments, and with these the kernel keeps within `from` and within `rows` rows of as
/// many columns.
pub(crate) unsafe fn launch(
    gpu: &Gpu,
    kernel: Kernel,
    from: &Tensor,
    (bounds, segments): (Address, usize),
    rows: usize,
) -> Result<Tensor> {
    let (dtype, cols) = (from.dtype(), from.dims2()?.1);
    let to = gpu.uninitialised((rows, cols), dtype)?;
    let (from, into) = (gpu.input(from, dtype)?, gpu.output(&to, dtype)?);
    let args = Segments { from, bounds, to: into, cols: cols as i64 };
    let blocks = [segments as u32, cols.div_ceil(THREADS) as u32, 1];
    let grid = Grid { blocks, threads: THREADS as u32, shared_bytes: 0 };
    // SAFETY: the caller promises that the kernel keeps within both matrices.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    Ok(to)
}
