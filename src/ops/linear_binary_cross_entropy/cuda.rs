//! The op on the GPU: a warp a row for the logits, then all rows by columns for the gradients.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::computed::AnyIndices;
use crate::cuda::Address;
use crate::cuda::Gpu;
use crate::cuda::Grid;
use crate::cuda::Kernel;
use crate::cuda::columns::Columns;
use crate::cuda::columns::WARPS;
use crate::cuda::sums::Partials;
use crate::cuda::sums::RowBlocks;
use crate::cuda::wide;
use crate::linear_binary_cross_entropy::Map;

const ROWS: Kernel = Kernel { op: "linear_binary_cross_entropy", name: "linear_binary_rows" };
const TOTALS: Kernel = Kernel { op: "linear_binary_cross_entropy", name: "linear_binary_totals" };
const GRADIENTS: Kernel = Kernel { op: "linear_binary_cross_entropy", name: "linear_binary_gradients" };

/// Rows of a block of [`ROWS`]: one a warp.
const BLOCK_ROWS: usize = 8;

/// Twin of `RowsArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RowsArgs {
    x: Address,
    weight: Address,
    bias: Address,
    labels: Address,
    logits: Address,
    found: Address,
    slopes: Address,
    rows: i64,
    cols: i64,
    scale: f32,
}

/// Twin of `TotalsArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct TotalsArgs {
    found: Address,
    slopes: Address,
    totals: Address,
    dbias: Address,
    rows: i64,
}

/// Twin of `GradientsArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct GradientsArgs {
    x: Address,
    weight: Address,
    slopes: Address,
    dx: Address,
    dweight_partials: Address,
    columns: Columns,
    wide: u32,
}

impl RowsArgs {
    fn of(gpu: &Gpu, x_md: &Tensor, map: Map<'_>) -> Result<Self> {
        let (rows, cols) = x_md.dims2()?;
        Ok(Self {
            x: gpu.input(x_md, x_md.dtype())?,
            weight: gpu.input(map.weight, DType::F32)?,
            bias: gpu.input(map.bias, DType::F32)?,
            labels: Address::NULL,
            logits: Address::NULL,
            found: Address::NULL,
            slopes: Address::NULL,
            rows: rows as i64,
            cols: cols as i64,
            scale: 0.0,
        })
    }

    /// # Safety
    /// Every address that is not null has room for what the kernel reads or writes there: see its `RowsArgs`.
    unsafe fn launch(&self, gpu: &Gpu, dtype: DType) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let grid = Grid::of((self.rows as usize).div_ceil(BLOCK_ROWS), 32 * BLOCK_ROWS as u32);
        // SAFETY: the caller's promise.
        unsafe { gpu.launch(ROWS, Some(dtype), grid, self) }
    }
}

pub(super) fn logits(gpu: &Gpu, x_md: &Tensor, map: Map<'_>) -> Result<Tensor> {
    let logits = gpu.uninitialised(x_md.dim(0)?, DType::F32)?;
    let args = RowsArgs { logits: gpu.output(&logits, DType::F32)?, ..RowsArgs::of(gpu, x_md, map)? };
    // SAFETY: `x` is `[rows, cols]`, the weight `[1, cols]`, there is a logit for each row.
    unsafe { args.launch(gpu, x_md.dtype()) }?;
    Ok(logits)
}

pub(super) fn forward(gpu: &Gpu, x_md: &Tensor, map: Map<'_>, labels: AnyIndices<'_>) -> Result<Tensor> {
    rows(gpu, x_md, map, labels, 0.0, None)
}

/// Loss and scores of all rows; with room for the slopes of their logits, and the gradient of the bias, these
/// as well.
fn rows(
    gpu: &Gpu,
    x_md: &Tensor,
    map: Map<'_>,
    labels: AnyIndices<'_>,
    scale: f32,
    slopes: Option<(&Tensor, &Tensor)>,
) -> Result<Tensor> {
    let rows = x_md.dim(0)?;
    let found = gpu.uninitialised((rows, 4), DType::F64)?;
    let totals = gpu.uninitialised(4, DType::F64)?;
    let at = |t: &Tensor| gpu.output(t, DType::F32);
    let slopes_at = slopes.map_or(Ok(Address::NULL), |(slopes, _)| at(slopes))?;
    if rows > 0 {
        let (labels, _kept) = labels.on_gpu(gpu)?;
        let found = gpu.output(&found, DType::F64)?;
        let args = RowsArgs { labels, found, slopes: slopes_at, scale, ..RowsArgs::of(gpu, x_md, map)? };
        // SAFETY: there is a label, room for four values and for a slope for each row of `x`.
        unsafe { args.launch(gpu, x_md.dtype()) }?;
    }
    let args = TotalsArgs {
        found: gpu.input(&found, DType::F64)?,
        slopes: slopes_at,
        totals: gpu.output(&totals, DType::F64)?,
        dbias: slopes.map_or(Ok(Address::NULL), |(_, dbias)| at(dbias))?,
        rows: rows as i64,
    };
    let grid = Grid::of(1, 512).with_shared(16 * size_of::<f64>());
    // SAFETY: there are four values, and a slope if any, for each row, and four totals.
    unsafe { gpu.launch(TOTALS, None, grid, &args) }?;
    Ok(totals)
}

pub(super) fn forward_backward(
    gpu: &Gpu,
    x_md: &Tensor,
    map: Map<'_>,
    labels: AnyIndices<'_>,
    scale: f32,
    dmap: Map<'_>,
) -> Result<(Tensor, Tensor)> {
    let (dtype, (rows_count, cols)) = (x_md.dtype(), x_md.dims2()?);
    let slopes = gpu.uninitialised(rows_count, DType::F32)?;
    let totals = rows(gpu, x_md, map, labels, scale, Some((&slopes, dmap.bias)))?;
    let dx_md = gpu.uninitialised((rows_count, cols), dtype)?;
    if rows_count == 0 {
        return Ok((totals, dx_md));
    }
    let blocks = RowBlocks::of(rows_count, WARPS);
    let partials = Partials::new(gpu, blocks.count, cols)?;
    let (x, dx) = (gpu.input(x_md, dtype)?, gpu.output(&dx_md, dtype)?);
    let weight = gpu.input(map.weight, DType::F32)?;
    let columns = Columns::of((rows_count, cols), blocks);
    let wide = wide::flag(cols, dtype, &[x, dx]);
    let args = GradientsArgs {
        x,
        weight,
        slopes: gpu.input(&slopes, DType::F32)?,
        dx,
        dweight_partials: partials.address(gpu)?,
        columns,
        wide,
    };
    // SAFETY: `x` and `dx` are `[rows, cols]`, the weight is `[1, cols]`, there is a slope for each row and a
    // row of partial sums for each block of rows.
    unsafe {
        gpu.launch(GRADIENTS, Some(dtype), columns.grid_with_sums(wide::lane_values(wide, dtype)), &args)
    }?;
    partials.add_to(gpu, [Some((&dmap.weight.flatten_all()?).into())])?;
    Ok((totals, dx_md))
}
