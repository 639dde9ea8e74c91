//! Sums over rows in two halves: blocks of rows by the op's own kernel, then the blocks in order.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use super::Address;
use super::Gpu;
use super::Grid;
use super::Kernel;

/// Most blocks of rows: enough to fill the largest GPU twice; the same number on every GPU, so that sums are
/// the same.
const MOST_BLOCKS: usize = 264;

/// How rows are shared out to blocks: a function of their number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) struct RowBlocks {
    /// Rows of each block but the last.
    pub(in crate::ops) rows: usize,
    /// Blocks.
    pub(in crate::ops) count: usize,
}

impl RowBlocks {
    /// Blocks of at least `least` rows.
    pub(in crate::ops) fn of(rows: usize, least: usize) -> Self {
        let size = rows.div_ceil(MOST_BLOCKS).max(least).max(1);
        Self { rows: size, count: rows.div_ceil(size) }
    }
}

/// What blocks of rows come to, `[blocks, cols]` in f32: written by one kernel, added up by the next.
#[derive(Debug)]
pub(in crate::ops) struct Partials {
    sums: Tensor,
    blocks: usize,
    cols: usize,
}

/// Twin of `AddPartialsArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AddPartialsArgs {
    partials: Address,
    out: Address,
    count: i64,
    cols: i64,
    stride: i64,
}

impl Partials {
    /// Room for the sums of so many blocks.
    pub(in crate::ops) fn new(gpu: &Gpu, blocks: usize, cols: usize) -> Result<Self> {
        Ok(Self { sums: gpu.uninitialised((blocks, cols), DType::F32)?, blocks, cols })
    }

    /// Where the kernel writes them.
    pub(in crate::ops) fn address(&self, gpu: &Gpu) -> Result<Address> {
        gpu.output(&self.sums, DType::F32)
    }

    /// Adds the sums of the columns from `first` on, as many as `out` has values, to `out`.
    pub(in crate::ops) fn add_to(&self, gpu: &Gpu, first: usize, out: &Tensor) -> Result<()> {
        const KERNEL: Kernel = Kernel { op: "cuda", name: "add_partials" };
        let cols = out.elem_count();
        assert!(first + cols <= self.cols, "the columns are among those that were summed");
        let args = AddPartialsArgs {
            partials: gpu.input(&self.sums, DType::F32)?.plus(first * size_of::<f32>()),
            out: gpu.output(out, DType::F32)?,
            count: self.blocks as i64,
            cols: cols as i64,
            stride: self.cols as i64,
        };
        // SAFETY: the sums are `[blocks, cols]`, and `out` has as many values as columns are read.
        unsafe { gpu.launch(KERNEL, Some(DType::F32), Grid::of(cols.div_ceil(256), 256), &args) }
    }
}
