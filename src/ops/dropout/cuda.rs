//! Dropout on the GPU, one pass over the rows.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Address;
use crate::ops::cuda::DropoutArgs;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Grid;
use crate::ops::cuda::Kernel;
use crate::ops::cuda::sums::RowBlocks;
use crate::ops::cuda::wide;
use crate::ops::dropout::Dropout;
use crate::ops::indices::Indices;

const APPLY: Kernel = Kernel { op: "dropout", name: "dropout_apply" };
const WARPS: usize = 8;

/// Twin of `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    x: Address,
    row_keys: Address,
    y: Address,
    rows: i64,
    cols: i64,
    block_rows: i64,
    dropout: DropoutArgs,
    wide: u32,
}

impl Args {
    fn grid(&self, blocks: RowBlocks, dtype: DType) -> Grid {
        let block_cols = 32 * if self.wide == 0 { 1 } else { wide::values(dtype) };
        let across = (self.cols as usize).div_ceil(block_cols) as u32;
        Grid { blocks: [across, blocks.count as u32, 1], threads: 32 * WARPS as u32, shared_bytes: 0 }
    }
}

pub(super) fn apply(gpu: &Gpu, x_td: &Tensor, row_keys: Indices<'_, u64>, dropout: &Dropout) -> Result<Tensor> {
    let (dtype, (rows, cols)) = (x_td.dtype(), x_td.dims2()?);
    let (y_td, blocks) = (gpu.uninitialised((rows, cols), dtype)?, RowBlocks::of(rows, WARPS));
    let (x, y) = (gpu.input(x_td, dtype)?, gpu.output(&y_td, dtype)?);
    let (row_keys, _keys) = gpu.keys(row_keys)?;
    let args = Args {
        x,
        row_keys,
        y,
        rows: rows as i64,
        cols: cols as i64,
        block_rows: blocks.rows as i64,
        dropout: DropoutArgs::of(Some(dropout)),
        wide: wide::flag(cols, dtype, &[x, y]),
    };
    // SAFETY: `x` and `y` are `[rows, cols]`, and there is a key for each row.
    unsafe { gpu.launch(APPLY, Some(dtype), args.grid(blocks, dtype), &args) }?;
    Ok(y_td)
}
