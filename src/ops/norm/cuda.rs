//! The norm on the GPU: sums of squares of fixed blocks, then the blocks; nothing is read back.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::cuda::Address;
use crate::cuda::Gpu;
use crate::cuda::Grid;
use crate::cuda::Kernel;
use crate::cuda::wide;

const SQUARES: Kernel = Kernel { op: "norm", name: "norm_squares" };
const ROOT: Kernel = Kernel { op: "norm", name: "norm_root" };
const POISON: Kernel = Kernel { op: "norm", name: "norm_poison" };
const THREADS: u32 = 512;
/// A sum for each warp.
const ROOM_BYTES: usize = THREADS as usize / 32 * size_of::<f64>();

/// Twin of `SquaresArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SquaresArgs {
    values: Address,
    partials: Address,
    count: i64,
    block_values: i64,
    wide: u32,
}

/// Twin of `RootArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RootArgs {
    partials: Address,
    norm: Address,
    count: i64,
}

/// Twin of `PoisonArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PoisonArgs {
    norm: Address,
    totals: Address,
}

/// Values of a block: at least four fours for each thread, and at most four blocks for each processor of the
/// largest GPU.
fn block_values(count: usize) -> usize {
    const MOST_BLOCKS: usize = 528;
    count.div_ceil(MOST_BLOCKS).next_multiple_of(4).max(16 * THREADS as usize)
}

pub(super) fn l2(gpu: &Gpu, t: &Tensor) -> Result<Tensor> {
    let count = t.elem_count();
    let block_values = block_values(count);
    let blocks = count.div_ceil(block_values);
    // One at least: there is no memory of no bytes.
    let (partials, norm) = (gpu.uninitialised(blocks.max(1), DType::F64)?, gpu.uninitialised(1, DType::F64)?);
    let values = gpu.input(t, DType::F32)?;
    let squares = SquaresArgs {
        values,
        partials: gpu.output(&partials, DType::F64)?,
        count: count as i64,
        block_values: block_values as i64,
        // The last four may be cut short: the kernel looks.
        wide: wide::flag(4, DType::F32, &[values]),
    };
    // SAFETY: the blocks cover the values, and there is a partial sum for each.
    unsafe { gpu.launch(SQUARES, None, Grid::of(blocks, THREADS).with_shared(ROOM_BYTES), &squares) }?;
    let root =
        RootArgs { partials: squares.partials, norm: gpu.output(&norm, DType::F64)?, count: blocks as i64 };
    // SAFETY: there are as many partial sums as blocks, and one norm.
    unsafe { gpu.launch(ROOT, None, Grid::of(1, THREADS).with_shared(ROOM_BYTES), &root) }?;
    Ok(norm)
}

pub(super) fn poison(gpu: &Gpu, norm: &Tensor, totals: &Tensor) -> Result<()> {
    let args = PoisonArgs { norm: gpu.output(norm, DType::F64)?, totals: gpu.input(totals, DType::F64)? };
    // SAFETY: the first of each is read or written.
    unsafe { gpu.launch(POISON, None, Grid::of(1, 32), &args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel counts values in 64 bits; blocks begin at multiples of four.
    #[test]
    fn blocks_cover_more_than_two_billion_values() {
        for count in [1, 8192, 8193, (1 << 31) - 1, (1 << 31) + 7, 5 << 33] {
            let (values, blocks) = (block_values(count), count.div_ceil(block_values(count)));
            assert!(
                values.is_multiple_of(4)
                    && blocks <= 528
                    && blocks * values >= count
                    && (blocks - 1) * values < count,
                "{count}"
            );
        }
    }
}
