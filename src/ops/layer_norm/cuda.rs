//! Layer normalisation on the GPU, and the parts that other ops which end in a norm share with it.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::sums::{Partials, RowBlocks};
use crate::cuda::{Address, Gpu, Grid, Kernel, wide};
use crate::layer_norm::{Form, Saved, earlier};

const FORWARD: Kernel = Kernel { op: "layer_norm", name: "layer_norm_forward" };
const BACKWARD: ByWidth = ByWidth {
    op: "layer_norm",
    held: "layer_norm_backward_held",
    earlier: [(768, "layer_norm_backward_768_earlier"), (1024, "layer_norm_backward_1024_earlier")],
    any: "layer_norm_backward_any",
};

/// Number of rows of a block in the forward kernel; each has one warp.
const FORWARD_ROWS: usize = 4;
/// Largest number of warps of a block in the backward kernels.
const BACKWARD_WARPS: usize = 8;
/// Number of columns per warp of a row that a block holds in registers.
const WARP_COLUMNS: usize = 256;
/// Bytes of shared memory for the partial sums of the warps of a row: two numbers per warp, in two buffers
/// that alternate.
const WARP_SUMS_BYTES: usize = 2 * BACKWARD_WARPS * 2 * size_of::<f32>();
/// Bytes of shared memory for the four numbers of each of the 16 rows of a tile, for rows that are not held
/// in registers: see `backward_any` in `backward.cuh`.
const TILE_BYTES: usize = 16 * 4 * size_of::<f32>();

/// The backward kernels of an op, which are selected by the width of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByWidth {
    pub(crate) op: &'static str,
    /// For rows that a block holds in registers.
    pub(crate) held: &'static str,
    /// The kernels that [`earlier`] selects, each with the largest number of columns that one warp holds.
    pub(crate) earlier: [(usize, &'static str); 2],
    /// For rows of any width.
    pub(crate) any: &'static str,
}

/// Same layout as `Norm` in `forward.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Norm {
    weight: Address,
    bias: Address,
    y: Address,
    mean: Address,
    rstd: Address,
    rows: i64,
    cols: i64,
    eps: f32,
    wide: u32,
}

impl Norm {
    /// The arguments for a norm with these vectors that writes `y` and `saved`. `others` are the addresses of
    /// all other arrays that the kernel accesses 16 bytes at a time if their alignment allows it.
    pub(crate) fn new(
        gpu: &Gpu,
        weight: &Tensor,
        bias: Option<&Tensor>,
        eps: f64,
        y: &Tensor,
        saved: &Saved,
        others: &[Address],
    ) -> Result<Self> {
        let dtype = y.dtype();
        let (rows, cols) = y.dims2()?;
        let (weight, y) = (gpu.input(weight, DType::F32)?, gpu.output(y, dtype)?);
        let bias = bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
        let all: Vec<Address> = [weight, bias, y].iter().chain(others).copied().collect();
        Ok(Self {
            weight,
            bias,
            y,
            mean: mean_address(saved, |mean| gpu.output(mean, DType::F32))?,
            rstd: gpu.output(&saved.rstd_t, DType::F32)?,
            rows: rows as i64,
            cols: cols as i64,
            eps: eps as f32,
            wide: wide::flag(cols, dtype, &all),
        })
    }

    pub(crate) fn grid(&self) -> Grid {
        Grid::of((self.rows as usize).div_ceil(FORWARD_ROWS), 32 * FORWARD_ROWS as u32)
    }
}

/// The address of the means; null for RMSNorm.
fn mean_address(saved: &Saved, address: impl FnOnce(&Tensor) -> Result<Address>) -> Result<Address> {
    saved.mean_t.as_ref().map_or(Ok(Address::NULL), address)
}

/// Allocates the output of a norm of this form, and its moments.
pub(crate) fn outputs(
    form: Form,
    gpu: &Gpu,
    [rows, cols]: [usize; 2],
    dtype: DType,
) -> Result<(Tensor, Saved)> {
    let y = gpu.uninitialised((rows, cols), dtype)?;
    let mean_t = match form {
        Form::LayerNorm => Some(gpu.uninitialised(rows, DType::F32)?),
        Form::RmsNorm => None,
    };
    let rstd_t = gpu.uninitialised(rows, DType::F32)?;
    Ok((y, Saved { mean_t, rstd_t }))
}

/// Same layout as `NormBackward` in `backward.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct NormBackward {
    dy: Address,
    more: Address,
    x: Address,
    weight: Address,
    mean: Address,
    rstd: Address,
    dx: Address,
    partials: Address,
    rows: i64,
    cols: i64,
    block_rows: i64,
    wide: u32,
    row_warps: u32,
}

/// The inputs of a norm's backward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackwardInputs<'a> {
    pub(crate) dy_td: &'a Tensor,
    /// Added to the gradient of the input before it is rounded.
    pub(crate) more_td: Option<&'a Tensor>,
    pub(crate) x_td: &'a Tensor,
    pub(crate) weight_d: &'a Tensor,
    pub(crate) saved: &'a Saved,
}

impl NormBackward {
    /// The arguments for a backward pass that writes `dx` and makes `sums` sums over each column, with the
    /// buffer of partial sums; `others` as for [`Norm::new`].
    pub(crate) fn new(
        gpu: &Gpu,
        inputs: BackwardInputs<'_>,
        dx: &Tensor,
        sums: usize,
        others: &[Address],
    ) -> Result<(Self, Partials, RowBlocks)> {
        let dtype = dx.dtype();
        let (rows, cols) = dx.dims2()?;
        let blocks = RowBlocks::of(rows, BACKWARD_WARPS);
        let partials = Partials::new(gpu, blocks.count, sums * cols)?;
        let (dy, x) = (gpu.input(inputs.dy_td, dtype)?, gpu.input(inputs.x_td, dtype)?);
        let more = inputs.more_td.map_or(Ok(Address::NULL), |more| gpu.input(more, dtype))?;
        let (weight, dx) = (gpu.input(inputs.weight_d, DType::F32)?, gpu.output(dx, dtype)?);
        let all: Vec<Address> = [dy, more, x, weight, dx].iter().chain(others).copied().collect();
        let args = Self {
            dy,
            more,
            x,
            weight,
            mean: mean_address(inputs.saved, |mean| gpu.input(mean, DType::F32))?,
            rstd: gpu.input(&inputs.saved.rstd_t, DType::F32)?,
            dx,
            partials: partials.address(gpu)?,
            rows: rows as i64,
            cols: cols as i64,
            block_rows: blocks.rows as i64,
            wide: wide::flag(cols, dtype, &all),
            row_warps: cols.div_ceil(WARP_COLUMNS) as u32,
        };
        Ok((args, partials, blocks))
    }

    /// Selects the kernel for the width of these rows, and its grid.
    pub(crate) fn pick(&self, kernels: ByWidth, blocks: RowBlocks) -> (Kernel, Grid) {
        let cols = self.cols as usize;
        let row_warps = self.row_warps as usize;
        let is_wide = self.wide != 0;
        let earlier_kernel = kernels.earlier.into_iter().find(|&(most, _)| is_wide && cols <= most);
        let (name, warps, shared_bytes) = match earlier_kernel {
            Some((_, name)) if earlier::is_asked_for() => {
                (name, BACKWARD_WARPS, BACKWARD_WARPS * cols * size_of::<f32>())
            }
            _ if is_wide && row_warps <= BACKWARD_WARPS => {
                // The number of rows that a block processes at the same time.
                let rows = BACKWARD_WARPS / row_warps;
                let sums_bytes = rows * cols * size_of::<f32>();
                (kernels.held, rows * row_warps, WARP_SUMS_BYTES + sums_bytes)
            }
            _ => (kernels.any, BACKWARD_WARPS, TILE_BYTES),
        };
        let grid = Grid::of(blocks.count, 32 * warps as u32).with_shared(shared_bytes);
        (Kernel { op: kernels.op, name }, grid)
    }
}

/// Same layout as `ForwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ForwardArgs {
    x: Address,
    norm: Norm,
}

pub(super) fn forward(
    form: Form,
    gpu: &Gpu,
    x_td: &Tensor,
    weight_d: &Tensor,
    bias_d: Option<&Tensor>,
    eps: f64,
) -> Result<(Tensor, Saved)> {
    let dtype = x_td.dtype();
    let (rows, cols) = x_td.dims2()?;
    let (y, saved) = outputs(form, gpu, [rows, cols], dtype)?;
    let x = gpu.input(x_td, dtype)?;
    let norm = Norm::new(gpu, weight_d, bias_d, eps, &y, &saved, &[x])?;
    // SAFETY: `x` and `y` are `[rows, cols]`, weight and bias (which may be null) `[cols]`, the moments
    // `[rows]` (the mean may be null).
    unsafe { gpu.launch(FORWARD, Some(dtype), norm.grid(), &ForwardArgs { x, norm }) }?;
    Ok((y, saved))
}

pub(super) fn backward(
    gpu: &Gpu,
    inputs: BackwardInputs<'_>,
    dweight_d: &Tensor,
    dbias_d: Option<&Tensor>,
) -> Result<Tensor> {
    let dtype = inputs.x_td.dtype();
    let dx = gpu.uninitialised(inputs.x_td.dims2()?, dtype)?;
    let (args, partials, blocks) = NormBackward::new(gpu, inputs, &dx, 2, &[])?;
    let (kernel, grid) = args.pick(BACKWARD, blocks);
    // SAFETY: `dy`, `x` and `dx` are `[rows, cols]`, the weight `[cols]`, the moments `[rows]`; each block
    // has two rows of partial sums.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    partials.add_to(gpu, [Some(dweight_d.into()), dbias_d.map(Accumulator::from)])?;
    Ok(dx)
}
