//! The moving average on the GPU: one launch over both buffers.

use candle_core::{DType, Result, Tensor};

use crate::cuda::{Address, Gpu, Grid, Kernel, wide};

const UPDATE: Kernel = Kernel { op: "moving_average", name: "moving_average_update" };
const EXCHANGE: Kernel = Kernel { op: "moving_average", name: "moving_average_exchange" };
const THREADS: usize = 256;
/// Largest number of blocks; for more values, each thread processes several.
const MOST_BLOCKS: usize = 4096;

/// Same layout as `AverageArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AverageArgs {
    average: Address,
    weights: Address,
    count: i64,
    rest: f32,
    wide: u32,
}

pub(super) fn update(gpu: &Gpu, average_n: &Tensor, weights_n: &Tensor, rest: f32) -> Result<()> {
    launch(gpu, UPDATE, average_n, weights_n, rest)
}

pub(super) fn exchange(gpu: &Gpu, average_n: &Tensor, weights_n: &Tensor) -> Result<()> {
    launch(gpu, EXCHANGE, average_n, weights_n, 1.0)
}

fn launch(gpu: &Gpu, kernel: Kernel, average_n: &Tensor, weights_n: &Tensor, rest: f32) -> Result<()> {
    let count = average_n.elem_count();
    let average = gpu.output(average_n, DType::F32)?;
    let weights = gpu.output(weights_n, DType::F32)?;
    let wide = wide::flag(count, DType::F32, &[average, weights]);
    let args = AverageArgs { average, weights, count: count as i64, rest, wide };
    let lanes = count / wide::lane_values(wide, DType::F32);
    let grid = Grid::of(lanes.div_ceil(THREADS).min(MOST_BLOCKS), THREADS as u32);
    // SAFETY: both buffers were checked to have `count` values, and do not share memory.
    unsafe { gpu.launch(kernel, None, grid, &args) }
}
