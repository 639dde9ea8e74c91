//! Sums over rows in two passes: the op's own kernel sums blocks of rows, then a second kernel adds the
//! blocks in order.

use candle_core::{DType, Result, Tensor};

use super::{Address, Gpu, Grid, Kernel};
use crate::accumulator::Accumulator;

/// Most blocks of rows: enough to fill the largest GPU twice, and the same number on every GPU, so that the
/// sums are bitwise the same.
const MOST_BLOCKS: usize = 264;

/// Partition of rows into blocks, which depends on the number of rows alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowBlocks {
    /// Rows of each block; the last block may have fewer.
    pub(crate) rows: usize,
    /// Number of blocks.
    pub(crate) count: usize,
}

impl RowBlocks {
    /// Divides `rows` rows into blocks of at least `least` rows.
    pub(crate) fn of(rows: usize, least: usize) -> Self {
        let size = rows.div_ceil(MOST_BLOCKS).max(least).max(1);
        Self { rows: size, count: rows.div_ceil(size) }
    }
}

/// Partial sums of the blocks of rows, `[blocks, cols]` in f32: written by one kernel, added up by the next.
#[derive(Debug)]
pub(crate) struct Partials {
    sums: Tensor,
    blocks: usize,
    cols: usize,
}

/// Most vectors whose partial sums are stored side by side in one row.
const MOST_SUMS: usize = 3;
/// Warps per block: equal to `SUM_WARPS` in `kernel.cu`.
const WARPS: u32 = 16;

/// Same layout as `AddPartialsArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AddPartialsArgs {
    partials: Address,
    out: [Address; MOST_SUMS],
    count: i64,
    cols: i64,
    stride: i64,
    begun: [u32; MOST_SUMS],
}

impl Partials {
    /// Allocates the partial sums of `blocks` blocks.
    pub(crate) fn new(gpu: &Gpu, blocks: usize, cols: usize) -> Result<Self> {
        Ok(Self { sums: gpu.uninitialised((blocks, cols), DType::F32)?, blocks, cols })
    }

    /// Returns the address to which the first kernel writes the partial sums.
    pub(crate) fn address(&self, gpu: &Gpu) -> Result<Address> {
        gpu.output(&self.sums, DType::F32)
    }

    /// Adds up the blocks of each column and adds the result to `into`, or overwrites it if its sum has not
    /// begun. Each of the N targets has `[cols / N]` values, and their partial sums are side by side in each
    /// row; a target of `None` is skipped.
    pub(crate) fn add_to<const N: usize>(&self, gpu: &Gpu, into: [Option<Accumulator<'_>>; N]) -> Result<()> {
        const KERNEL: Kernel = Kernel { op: "cuda", name: "add_partials" };
        const { assert!(N <= MOST_SUMS) };
        let cols = self.cols / N;
        let mut out = [Address::NULL; MOST_SUMS];
        let mut begun = [0; MOST_SUMS];
        for (index, accumulator) in into.into_iter().enumerate() {
            let Some(Accumulator { sum, begun: has_begun }) = accumulator else { continue };
            assert_eq!(sum.elem_count(), cols, "there is a sum for each column");
            out[index] = gpu.output(sum, DType::F32)?;
            begun[index] = u32::from(has_begun);
        }
        let args = AddPartialsArgs {
            partials: gpu.input(&self.sums, DType::F32)?,
            out,
            count: self.blocks as i64,
            cols: cols as i64,
            stride: self.cols as i64,
            begun,
        };
        let blocks = [cols.div_ceil(32) as u32, N as u32, 1];
        let grid = Grid { blocks, threads: 32 * WARPS, shared_bytes: 32 * WARPS * size_of::<f32>() as u32 };
        // SAFETY: the partial sums are `[blocks, cols]`, and every `out` that is not null has one value for
        // each column that is read for it.
        unsafe { gpu.launch(KERNEL, Some(DType::F32), grid, &args) }
    }
}
