//! Dropout on the GPU, one pass over the rows.

use candle_core::{Result, Tensor};

use crate::cuda::columns::{Columns, WARPS};
use crate::cuda::sums::RowBlocks;
use crate::cuda::{Address, Gpu, Kernel, wide};
use crate::dropout::Dropout;
use crate::indices::Indices;

const APPLY: Kernel = Kernel { op: "dropout", name: "dropout_apply" };

/// The dropout arguments of a kernel; same layout as `Dropout` in `cuda/kernels/common.cuh`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct DropoutArgs {
    key: [u32; 2],
    id: [u32; 2],
    threshold: u32,
    scale: f32,
}

impl DropoutArgs {
    /// The arguments for `dropout`; for `None`, those that drop nothing.
    pub(crate) fn of(dropout: Option<&Dropout>) -> Self {
        let Some(dropout) = dropout else {
            return Self { key: [0; 2], id: [0; 2], threshold: 0, scale: 1.0 };
        };
        let (key, id) = dropout.stream.counter();
        Self { key, id, threshold: dropout.threshold(), scale: dropout.scale() }
    }
}

/// Same layout as `Args` in `kernel.cu`.
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
    let dtype = x_td.dtype();
    let (rows, cols) = x_td.dims2()?;
    let y_td = gpu.uninitialised((rows, cols), dtype)?;
    let (x, y) = (gpu.input(x_td, dtype)?, gpu.output(&y_td, dtype)?);
    let (row_keys, _keys) = row_keys.on_gpu(gpu)?;
    let args = Args {
        x,
        row_keys,
        y,
        columns: Columns::of((rows, cols), RowBlocks::of(rows, WARPS)),
        dropout: DropoutArgs::of(Some(dropout)),
        wide: wide::flag(cols, dtype, &[x, y]),
    };
    // SAFETY: `x` and `y` are `[rows, cols]`, and each row has a key.
    unsafe { gpu.launch(APPLY, Some(dtype), args.columns.grid(wide::lane_values(args.wide, dtype)), &args) }?;
    Ok(y_td)
}
