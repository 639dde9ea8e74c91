//! Gated activations on the GPU, one pass over the rows each way.

use candle_core::{Result, Tensor};

use crate::cuda::columns::{Columns, WARPS};
use crate::cuda::sums::RowBlocks;
use crate::cuda::{Address, Gpu, Kernel, wide};
use crate::gated::Function;

/// The kernels of a function, forward and backward.
fn kernels(function: Function) -> [Kernel; 2] {
    let names = match function {
        Function::Gelu => ["geglu_forward", "geglu_backward"],
        Function::Silu => ["swiglu_forward", "swiglu_backward"],
    };
    names.map(|name| Kernel { op: "gated", name })
}

/// Same layout as `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    dy: Address,
    x: Address,
    to: Address,
    columns: Columns,
    wide: u32,
}

pub(super) fn forward(function: Function, gpu: &Gpu, x_t2f: &Tensor) -> Result<Tensor> {
    let (tokens, cols) = (x_t2f.dim(0)?, x_t2f.dim(1)? / 2);
    let y = gpu.uninitialised((tokens, cols), x_t2f.dtype())?;
    let [kernel, _] = kernels(function);
    launch(gpu, kernel, None, x_t2f, &y)?;
    Ok(y)
}

pub(super) fn backward(function: Function, gpu: &Gpu, dy_tf: &Tensor, x_t2f: &Tensor) -> Result<Tensor> {
    let [_, kernel] = kernels(function);
    let dx = gpu.uninitialised(x_t2f.shape(), x_t2f.dtype())?;
    launch(gpu, kernel, Some(dy_tf), x_t2f, &dx)?;
    Ok(dx)
}

fn launch(gpu: &Gpu, kernel: Kernel, dy_tf: Option<&Tensor>, x_t2f: &Tensor, to: &Tensor) -> Result<()> {
    let (dtype, tokens, cols) = (x_t2f.dtype(), x_t2f.dim(0)?, x_t2f.dim(1)? / 2);
    let dy = dy_tf.map_or(Ok(Address::NULL), |dy| gpu.input(dy, dtype))?;
    let (x, to) = (gpu.input(x_t2f, dtype)?, gpu.output(to, dtype)?);
    let columns = Columns::of((tokens, cols), RowBlocks::of(tokens, WARPS));
    // In forward, the address of the missing gradient is 0, which counts as aligned.
    let args = Args { dy, x, to, columns, wide: wide::flag(cols, dtype, &[dy, x, to]) };
    // SAFETY: `x` is `[T, 2F]`; the output gradient, which backward reads, is `[T, F]`. Forward writes
    // `[T, F]`, backward writes `[T, 2F]`.
    unsafe { gpu.launch(kernel, Some(dtype), columns.grid(wide::lane_values(args.wide, dtype)), &args) }
}
