//! Dropout on the GPU, one pass over the rows.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Address;
use crate::ops::cuda::DropoutArgs;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Kernel;
use crate::ops::cuda::columns::Columns;
use crate::ops::cuda::columns::WARPS;
use crate::ops::cuda::sums::RowBlocks;
use crate::ops::cuda::wide;
use crate::ops::dropout::Dropout;
use crate::ops::indices::Indices;

const APPLY: Kernel = Kernel { op: "dropout", name: "dropout_apply" };

/// Twin of `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    x: Address,
    row_keys: Address,
    y: Address,
    columns: Columns,
    dropout: DropoutArgs,
    wide: u32,
}

pub(super) fn apply(
    gpu: &Gpu,
    x_td: &Tensor,
    row_keys: Indices<'_, u64>,
    dropout: &Dropout,
) -> Result<Tensor> {
    let (dtype, (rows, cols)) = (x_td.dtype(), x_td.dims2()?);
    let y_td = gpu.uninitialised((rows, cols), dtype)?;
    let (x, y) = (gpu.input(x_td, dtype)?, gpu.output(&y_td, dtype)?);
    let (row_keys, _keys) = gpu.keys(row_keys)?;
    let args = Args {
        x,
        row_keys,
        y,
        columns: Columns::of((rows, cols), RowBlocks::of(rows, WARPS)),
        dropout: DropoutArgs::of(Some(dropout)),
        wide: wide::flag(cols, dtype, &[x, y]),
    };
    // SAFETY: `x` and `y` are `[rows, cols]`, and there is a key for each row.
    unsafe { gpu.launch(APPLY, Some(dtype), args.columns.grid(wide::lane_values(args.wide, dtype)), &args) }?;
    Ok(y_td)
}
