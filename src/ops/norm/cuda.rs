//! The norm on the GPU: one kernel sums squares over fixed blocks, a second one adds the blocks' sums;
//! nothing is copied to the host.

use candle_core::{DType, Result, Tensor};

use crate::cuda::{Address, Gpu, Grid, Kernel, wide};

const SQUARES: Kernel = Kernel { op: "norm", name: "norm_squares" };
const ROOT: Kernel = Kernel { op: "norm", name: "norm_root" };
const POISON: Kernel = Kernel { op: "norm", name: "norm_poison" };
const THREADS: u32 = 512;
/// Shared memory for one f64 sum per warp.
const ROOM_BYTES: usize = THREADS as usize / 32 * size_of::<f64>();

/// Same layout as `SquaresArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SquaresArgs {
    values: Address,
    partials: Address,
    count: i64,
    block_values: i64,
    wide: u32,
}

/// Same layout as `RootArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RootArgs {
    partials: Address,
    norm: Address,
    count: i64,
}

/// Same layout as `PoisonArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PoisonArgs {
    norm: Address,
    totals: Address,
}

/// Number of values of a block. Each thread has at least 16 values, and there are at most 528 blocks, four
/// for each multiprocessor of the largest GPU.
fn block_values(count: usize) -> usize {
    const MOST_BLOCKS: usize = 528;
    count.div_ceil(MOST_BLOCKS).next_multiple_of(4).max(16 * THREADS as usize)
}

pub(super) fn l2(gpu: &Gpu, parts: &[&Tensor]) -> Result<Tensor> {
    let counts = parts.iter().map(|part| part.elem_count());
    let blocks: usize = counts.map(|count| count.div_ceil(block_values(count))).sum();
    // At least one partial sum, because a GPU cannot allocate zero bytes.
    let partials = gpu.uninitialised(blocks.max(1), DType::F64)?;
    let norm = gpu.uninitialised(1, DType::F64)?;
    let first = gpu.output(&partials, DType::F64)?;
    let mut before = 0;
    for part in parts {
        let count = part.elem_count();
        let block_values = block_values(count);
        let blocks = count.div_ceil(block_values);
        let values = gpu.input(part, part.dtype())?;
        let squares = SquaresArgs {
            values,
            partials: first.plus(before * DType::F64.size_in_bytes()),
            count: count as i64,
            block_values: block_values as i64,
            // The number of values need not be a multiple of four: the kernel checks the end. Four values of
            // a half type are 8 bytes.
            wide: wide::flag(4, DType::F32, &[values]),
        };
        let grid = Grid::of(blocks, THREADS).with_shared(ROOM_BYTES);
        // SAFETY: the blocks cover the values, and each block has a partial sum.
        unsafe { gpu.launch(SQUARES, Some(part.dtype()), grid, &squares) }?;
        before += blocks;
    }
    let root = RootArgs { partials: first, norm: gpu.output(&norm, DType::F64)?, count: blocks as i64 };
    // SAFETY: there are as many partial sums as blocks, and one norm.
    unsafe { gpu.launch(ROOT, None, Grid::of(1, THREADS).with_shared(ROOM_BYTES), &root) }?;
    Ok(norm)
}

pub(super) fn poison(gpu: &Gpu, norm: &Tensor, totals: &Tensor) -> Result<()> {
    let args = PoisonArgs { norm: gpu.output(norm, DType::F64)?, totals: gpu.input(totals, DType::F64)? };
    // SAFETY: the kernel reads only the first of `totals`, and writes only the first value of `norm`.
    unsafe { gpu.launch(POISON, None, Grid::of(1, 32), &args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel counts values in 64 bits; blocks begin at multiples of four.
    #[test]
    fn blocks_cover_more_than_two_billion_values() {
        for count in [1, 8192, 8193, (1 << 31) - 1, (1 << 31) + 7, 5 << 33] {
            let values = block_values(count);
            let blocks = count.div_ceil(values);
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
