//! Element-wise activations that add a bias per column first: launches of `kernels/activation.cuh`.

use candle_core::{DType, Result, Tensor};

use super::columns::{Columns, WARPS};
use super::sums::{Partials, RowBlocks};
use super::{Address, Gpu, Kernel, wide};
use crate::accumulator::Accumulator;

/// Same layout as `ActivationArgs` in `kernels/activation.cuh`.
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

/// Returns `y = F(x + bias)`, computed by the kernel of the activation `F`; `x` and `y` are `[rows, cols]`.
pub(crate) fn forward(gpu: &Gpu, kernel: Kernel, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let dtype = x.dtype();
    let (rows, cols) = x.dims2()?;
    let y = gpu.uninitialised((rows, cols), dtype)?;
    let from = gpu.input(x, dtype)?;
    let to = gpu.output(&y, dtype)?;
    let columns = Columns::of((rows, cols), RowBlocks::of(rows, WARPS));
    let wide = wide::flag(cols, dtype, &[from, to]);
    let bias = bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
    let args = Args { dy: Address::NULL, from, bias, to, dbias_partials: Address::NULL, columns, wide };
    // SAFETY: `x` and `y` are `[rows, cols]`, and a bias is `[cols]`.
    unsafe { gpu.launch(kernel, Some(dtype), columns.grid(wide::lane_values(wide, dtype)), &args) }?;
    Ok(y)
}

/// Returns `dx` and adds to `dbias` if there is one. `from` is the argument of the kernel's derivative: `x`
/// (to which `bias` is added) or the saved output `y`.
pub(crate) fn backward(
    gpu: &Gpu,
    kernel: Kernel,
    dy: &Tensor,
    from: &Tensor,
    bias: Option<&Tensor>,
    dbias: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let dtype = from.dtype();
    let (rows, cols) = from.dims2()?;
    let dx = gpu.uninitialised((rows, cols), dtype)?;
    let blocks = RowBlocks::of(rows, WARPS);
    let partials = Partials::new(gpu, blocks.count, cols)?;
    let dy = gpu.input(dy, dtype)?;
    let from = gpu.input(from, dtype)?;
    let to = gpu.output(&dx, dtype)?;
    let columns = Columns::of((rows, cols), blocks);
    let wide = wide::flag(cols, dtype, &[dy, from, to]);
    let bias = bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
    let args = Args { dy, from, bias, to, dbias_partials: partials.address(gpu)?, columns, wide };
    // SAFETY: `dy`, `from` and `dx` are `[rows, cols]`, a bias is `[cols]`, and there is a row of partial
    // sums for each block of rows.
    unsafe {
        gpu.launch(kernel, Some(dtype), columns.grid_with_sums(wide::lane_values(wide, dtype)), &args)
    }?;
    partials.add_to(gpu, [dbias])?;
    Ok(dx)
}
