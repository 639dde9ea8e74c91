//! Bias and activation on the GPU, one pass over the rows each way.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::activation::Function;
use crate::cuda::columns::{Columns, WARPS};
use crate::cuda::sums::{Partials, RowBlocks};
use crate::cuda::{Address, Gpu, Kernel, wide};

/// Names of the kernels of forward and backward.
fn kernels(function: Function) -> [Kernel; 2] {
    let names = match function {
        Function::Gelu => ["gelu_forward", "gelu_backward"],
        Function::GeluTanh => ["gelu_tanh_forward", "gelu_tanh_backward"],
        Function::Tanh => ["tanh_forward", "tanh_backward"],
        Function::Relu => ["relu_forward", "relu_backward"],
    };
    names.map(|name| Kernel { op: "activation", name })
}

/// Same layout as `Args` in `kernel.cu`.
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

pub(super) fn forward(function: Function, gpu: &Gpu, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let [kernel, _] = kernels(function);
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

pub(super) fn backward(
    function: Function,
    gpu: &Gpu,
    dy: &Tensor,
    from: &Tensor,
    bias: Option<&Tensor>,
    dbias: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let [_, kernel] = kernels(function);
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
