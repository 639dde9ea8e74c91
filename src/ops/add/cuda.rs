//! Sums of two tensors on the GPU.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::{Address, Gpu, Grid, Kernel, wide};

const SUM: Kernel = Kernel { op: "add", name: "add_sum" };
const ACCUMULATE: Kernel = Kernel { op: "add", name: "add_accumulate" };
const THREADS: usize = 256;
/// Largest number of blocks; for more values, each thread processes several.
const MOST_BLOCKS: usize = 4096;

/// Same layout as `SumArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SumArgs {
    a: Address,
    b: Address,
    to: Address,
    count: i64,
    wide: u32,
}

/// Same layout as `AccumulateArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AccumulateArgs {
    x: Address,
    sum: Address,
    count: i64,
    begun: u32,
}

fn grid(values: usize) -> Grid {
    Grid::of(values.div_ceil(THREADS).min(MOST_BLOCKS), THREADS as u32)
}

pub(super) fn sum(gpu: &Gpu, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let dtype = a.dtype();
    let count = a.elem_count();
    let sum = gpu.uninitialised(a.dims(), dtype)?;
    let (a, b, to) = (gpu.input(a, dtype)?, gpu.input(b, dtype)?, gpu.output(&sum, dtype)?);
    let wide = wide::flag(count, dtype, &[a, b, to]);
    let args = SumArgs { a, b, to, count: count as i64, wide };
    // SAFETY: all three have `count` values.
    unsafe { gpu.launch(SUM, Some(dtype), grid(count / wide::lane_values(wide, dtype)), &args) }?;
    Ok(sum)
}

pub(super) fn accumulate(gpu: &Gpu, x: &Tensor, Accumulator { sum, begun }: Accumulator<'_>) -> Result<()> {
    let dtype = x.dtype();
    let count = x.elem_count();
    let args = AccumulateArgs {
        x: gpu.input(x, dtype)?,
        sum: gpu.output(sum, DType::F32)?,
        count: count as i64,
        begun: begun.into(),
    };
    // SAFETY: both have `count` values.
    unsafe { gpu.launch(ACCUMULATE, Some(dtype), grid(count), &args) }
}
