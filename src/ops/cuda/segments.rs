//! Launch of kernels that process a segment of rows per block: see `kernels/segments.cuh`.

use candle_core::{Result, Tensor};

use super::{Address, Gpu, Grid, Kernel};

/// Threads per block, each of which processes one column.
const THREADS: usize = 128;

/// Same layout as `Segments` in `kernels/segments.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Segments {
    from: Address,
    bounds: Address,
    to: Address,
    cols: i64,
}

/// Launches the kernel over the rows of `from`, which `bounds` divides into `segments` segments, and returns
/// its output: a new matrix of `rows` rows with as many columns as `from`.
///
/// # Safety
/// `bounds` points to `segments + 1` bounds, and with these the kernel stays within `from` and within the
/// `rows` rows of the output.
pub(crate) unsafe fn launch(
    gpu: &Gpu,
    kernel: Kernel,
    from: &Tensor,
    (bounds, segments): (Address, usize),
    rows: usize,
) -> Result<Tensor> {
    let dtype = from.dtype();
    let (_, cols) = from.dims2()?;
    let to = gpu.uninitialised((rows, cols), dtype)?;
    let args =
        Segments { from: gpu.input(from, dtype)?, bounds, to: gpu.output(&to, dtype)?, cols: cols as i64 };
    let blocks = [segments as u32, cols.div_ceil(THREADS) as u32, 1];
    let grid = Grid { blocks, threads: THREADS as u32, shared_bytes: 0 };
    // SAFETY: the caller promises that the kernel keeps within both matrices.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    Ok(to)
}
