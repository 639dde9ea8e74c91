//! The op on the GPU: one warp for each row computes the logits, then threads for columns compute the
//! gradients.

use candle_core::{DType, Result, Tensor};

use crate::computed::AnyIndices;
use crate::cuda::columns::{Columns, WARPS};
use crate::cuda::sums::{Partials, RowBlocks};
use crate::cuda::{Address, Gpu, Grid, Kernel, wide};
use crate::linear_binary_cross_entropy::Map;

const ROWS: Kernel = Kernel { op: "linear_binary_cross_entropy", name: "linear_binary_rows" };
const TOTALS: Kernel = Kernel { op: "linear_binary_cross_entropy", name: "linear_binary_totals" };
const GRADIENTS: Kernel = Kernel { op: "linear_binary_cross_entropy", name: "linear_binary_gradients" };

/// Number of rows of a block of [`ROWS`]; each has one warp.
const BLOCK_ROWS: usize = 8;

/// Same layout as `RowsArgs` in `kernel.cu`.
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

/// Same layout as `TotalsArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct TotalsArgs {
    found: Address,
    slopes: Address,
    totals: Address,
    dbias: Address,
    rows: i64,
}

/// Same layout as `GradientsArgs` in `kernel.cu`.
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
    /// Arguments without outputs: the addresses of labels and of all results are null.
    fn new(gpu: &Gpu, x_md: &Tensor, map: Map<'_>) -> Result<Self> {
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

    /// Launches the kernel [`ROWS`], which writes the results whose addresses are not null.
    ///
    /// # Safety
    /// Every address that is not null must have the size that the kernel accesses: see `RowsArgs` in
    /// `kernel.cu`.
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
    let args = RowsArgs { logits: gpu.output(&logits, DType::F32)?, ..RowsArgs::new(gpu, x_md, map)? };
    // SAFETY: `x` is `[rows, cols]`, the weight is `[1, cols]`, and each row has a logit.
    unsafe { args.launch(gpu, x_md.dtype()) }?;
    Ok(logits)
}

pub(super) fn forward(gpu: &Gpu, x_md: &Tensor, map: Map<'_>, labels: AnyIndices<'_>) -> Result<Tensor> {
    rows(gpu, x_md, map, labels, 0.0, None)
}

/// Computes the totals of all rows. `slopes` are optional outputs: the gradients of the logits, which are
/// overwritten, and the gradient of the bias, which is added to.
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
    let slopes_at = slopes.map_or(Ok(Address::NULL), |(slopes, _)| gpu.output(slopes, DType::F32))?;
    if rows > 0 {
        let (labels, _kept) = labels.on_gpu(gpu)?;
        let found = gpu.output(&found, DType::F64)?;
        let args = RowsArgs { labels, found, slopes: slopes_at, scale, ..RowsArgs::new(gpu, x_md, map)? };
        // SAFETY: each row of `x` has a label, room for four values and, unless it is null, for a slope.
        unsafe { args.launch(gpu, x_md.dtype()) }?;
    }
    let args = TotalsArgs {
        found: gpu.input(&found, DType::F64)?,
        slopes: slopes_at,
        totals: gpu.output(&totals, DType::F64)?,
        dbias: slopes.map_or(Ok(Address::NULL), |(_, dbias)| gpu.output(dbias, DType::F32))?,
        rows: rows as i64,
    };
    let grid = Grid::of(1, 512).with_shared(16 * size_of::<f64>());
    // SAFETY: each row has four values and, unless it is null, a slope; there are four totals.
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
    let dtype = x_md.dtype();
    let (rows_count, cols) = x_md.dims2()?;
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
    // SAFETY: `x` and `dx` are `[rows, cols]`, the weight is `[1, cols]`, each row has a slope, and each
    // block of rows has a row of partial sums.
    unsafe {
        gpu.launch(GRADIENTS, Some(dtype), columns.grid_with_sums(wide::lane_values(wide, dtype)), &args)
    }?;
    partials.add_to(gpu, [Some((&dmap.weight.flatten_all()?).into())])?;
    Ok((totals, dx_md))
}
