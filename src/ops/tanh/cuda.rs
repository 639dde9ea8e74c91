//! Bias and hyperbolic tangent on the GPU, one pass over the rows each way; the bias gradient is summed on the way back.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Address;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Grid;
use crate::ops::cuda::Kernel;
use crate::ops::cuda::sums::Partials;
use crate::ops::cuda::sums::RowBlocks;
use crate::ops::cuda::wide;

const FORWARD: Kernel = Kernel { op: "tanh", name: "tanh_forward" };
const BACKWARD: Kernel = Kernel { op: "tanh", name: "tanh_backward" };
const WARPS: usize = 8;

/// Twin of `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    dy: Address,
    from: Address,
    bias: Address,
    to: Address,
    dbias_partials: Address,
    rows: i64,
    cols: i64,
    block_rows: i64,
    wide: u32,
}

impl Args {
    /// Columns of a block: 32 lanes with as many as fit 16 bytes, or one each.
    fn block_cols(&self, dtype: DType) -> usize {
        32 * if self.wide == 0 { 1 } else { wide::values(dtype) }
    }

    fn grid(&self, blocks: RowBlocks, dtype: DType) -> Grid {
        let across = (self.cols as usize).div_ceil(self.block_cols(dtype)) as u32;
        Grid { blocks: [across, blocks.count as u32, 1], threads: 32 * WARPS as u32, shared_bytes: 0 }
    }
}

pub(super) fn forward(gpu: &Gpu, x_bd: &Tensor, bias_d: &Tensor) -> Result<Tensor> {
    let (dtype, (rows, cols)) = (x_bd.dtype(), x_bd.dims2()?);
    let (y, blocks) = (gpu.uninitialised((rows, cols), dtype)?, RowBlocks::of(rows, WARPS));
    let (from, to) = (gpu.input(x_bd, dtype)?, gpu.output(&y, dtype)?);
    let args = Args {
        dy: Address::NULL,
        from,
        bias: gpu.input(bias_d, DType::F32)?,
        to,
        dbias_partials: Address::NULL,
        rows: rows as i64,
        cols: cols as i64,
        block_rows: blocks.rows as i64,
        wide: wide::flag(cols, dtype, &[from, to]),
    };
    // SAFETY: `x` and `y` are `[rows, cols]`, the bias is `[cols]`.
    unsafe { gpu.launch(FORWARD, Some(dtype), args.grid(blocks, dtype), &args) }?;
    Ok(y)
}

pub(super) fn backward(gpu: &Gpu, dy_bd: &Tensor, y_bd: &Tensor, dbias_d: &Tensor) -> Result<Tensor> {
    let (dtype, (rows, cols)) = (y_bd.dtype(), y_bd.dims2()?);
    let (dx, blocks) = (gpu.uninitialised((rows, cols), dtype)?, RowBlocks::of(rows, WARPS));
    let partials = Partials::new(gpu, blocks.count, cols)?;
    let (dy, from, to) = (gpu.input(dy_bd, dtype)?, gpu.input(y_bd, dtype)?, gpu.output(&dx, dtype)?);
    let args = Args {
        dy,
        from,
        bias: Address::NULL,
        to,
        dbias_partials: partials.address(gpu)?,
        rows: rows as i64,
        cols: cols as i64,
        block_rows: blocks.rows as i64,
        wide: wide::flag(cols, dtype, &[dy, from, to]),
    };
    let shared_bytes = WARPS * args.block_cols(dtype) * size_of::<f32>();
    // SAFETY: `dy`, `y` and `dx` are `[rows, cols]`, and there is a row of partial sums for each block of rows.
    unsafe { gpu.launch(BACKWARD, Some(dtype), args.grid(blocks, dtype).with_shared(shared_bytes), &args) }?;
    partials.add_to(gpu, 0, dbias_d)?;
    Ok(dx)
}
