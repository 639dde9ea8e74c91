//! Functions of each element with a bias before them: see `kernels/activation.cuh`.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use super::Address;
use super::Gpu;
use super::Kernel;
use super::columns::Columns;
use super::columns::WARPS;
use super::sums::Partials;
use super::sums::RowBlocks;
use super::wide;
use crate::accumulator::Accumulator;

/// Twin of `ActivationArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    dy: Address,
    from: Address,
    bias: Address,
    to: Address,
    dbias_partials: Address,
    columns: Columns,
    wide: u32,
}

/// `y = F(x + bias)` by the kernel of `F`; `x` and `y` are `[rows, cols]`.
pub(crate) fn forward(gpu: &Gpu, kernel: Kernel, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (dtype, (rows, cols)) = (x.dtype(), x.dims2()?);
    let y = gpu.uninitialised((rows, cols), dtype)?;
    let (from, to) = (gpu.input(x, dtype)?, gpu.output(&y, dtype)?);
    let columns = Columns::of((rows, cols), RowBlocks::of(rows, WARPS));
    let wide = wide::flag(cols, dtype, &[from, to]);
    let bias = bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
    let args = Args { dy: Address::NULL, from, bias, to, dbias_partials: Address::NULL, columns, wide };
    // SAFETY: `x` and `y` are `[rows, cols]`, a bias is `[cols]`.
    unsafe { gpu.launch(kernel, Some(dtype), columns.grid(wide::lane_values(wide, dtype)), &args) }?;
    Ok(y)
}

/// `dx` from what the kernel's slope is a function of (`x` with the bias, or `y`); adds to `dbias`, where
/// there is one.
pub(crate) fn backward(
    gpu: &Gpu,
    kernel: Kernel,
    dy: &Tensor,
    from: &Tensor,
    bias: Option<&Tensor>,
    dbias: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let (dtype, (rows, cols)) = (from.dtype(), from.dims2()?);
    let (dx, blocks) = (gpu.uninitialised((rows, cols), dtype)?, RowBlocks::of(rows, WARPS));
    let partials = Partials::new(gpu, blocks.count, cols)?;
    let (dy, from, to) = (gpu.input(dy, dtype)?, gpu.input(from, dtype)?, gpu.output(&dx, dtype)?);
    let columns = Columns::of((rows, cols), blocks);
    let wide = wide::flag(cols, dtype, &[dy, from, to]);
    let bias = bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
    let args = Args { dy, from, bias, to, dbias_partials: partials.address(gpu)?, columns, wide };
    // SAFETY: `dy`, `from` and `dx` are `[rows, cols]`, a bias is `[cols]`, there is a row of partial sums
    // for each block of rows.
    unsafe {
        gpu.launch(kernel, Some(dtype), columns.grid_with_sums(wide::lane_values(wide, dtype)), &args)
    }?;
    partials.add_to(gpu, [dbias])?;
    Ok(dx)
}
