//! Linear maps on the GPU: products by cuBLASLt, and the column sums of the bias gradient.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::add;
use crate::cuda::columns::{Columns, WARPS};
use crate::cuda::gemm::{Batch, Bias, Gemm, Operand, Varying};
use crate::cuda::sums::{Partials, RowBlocks};
use crate::cuda::{Address, Gpu, Kernel, wide};

const COLUMN_SUMS: Kernel = Kernel { op: "linear", name: "linear_column_sums" };

/// Same layout as `ColumnSumsArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ColumnSumsArgs {
    values: Address,
    partials: Address,
    columns: Columns,
    lane_values: u32,
}

pub(super) fn forward(gpu: &Gpu, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let dtype = x.dtype();
    let (rows, inputs) = x.dims2()?;
    let outputs = weight.dim(0)?;
    let y = gpu.uninitialised((rows, outputs), dtype)?;
    let gemm = Gemm {
        m: rows,
        n: outputs,
        k: inputs,
        a: Operand::rows(gpu.input(x, dtype)?, inputs),
        b: Operand::rows(gpu.input(weight, dtype)?, inputs).transposed(),
        out: Operand::rows(gpu.output(&y, dtype)?, outputs),
        dtype,
        out_dtype: dtype,
        accumulate: false,
        bias: bias.map(|bias| added(gpu, bias)).transpose()?,
        batch: Batch::ONE,
        varying: Varying::Rows,
    };
    // SAFETY: `x` is `[rows, inputs]`, the weight is `[outputs, inputs]`, the bias is `[outputs]`, and `y` is
    // `[rows, outputs]`.
    unsafe { gpu.gemm(&gemm) }?;
    Ok(y)
}

/// A bias for a product to add, of any dtype that products support.
fn added(gpu: &Gpu, bias: &Tensor) -> Result<Bias> {
    Ok(Bias { address: gpu.input(bias, bias.dtype())?, dtype: bias.dtype() })
}

pub(super) fn backward_input(gpu: &Gpu, dy: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let dx = gpu.uninitialised((dy.dim(0)?, weight.dim(1)?), dy.dtype())?;
    input_gradient(gpu, dy, weight, &dx, false)?;
    Ok(dx)
}

pub(super) fn backward_inputs_accumulate(gpu: &Gpu, maps: &[(&Tensor, &Tensor)], dx: &Tensor) -> Result<()> {
    maps.iter().try_for_each(|(dy, weight)| input_gradient(gpu, dy, weight, dx, true))
}

fn input_gradient(gpu: &Gpu, dy: &Tensor, weight: &Tensor, dx: &Tensor, accumulate: bool) -> Result<()> {
    let dtype = dy.dtype();
    let (rows, outputs) = dy.dims2()?;
    let inputs = weight.dim(1)?;
    let gemm = Gemm {
        m: rows,
        n: inputs,
        k: outputs,
        a: Operand::rows(gpu.input(dy, dtype)?, outputs),
        b: Operand::rows(gpu.input(weight, dtype)?, inputs),
        out: Operand::rows(gpu.output(dx, dtype)?, inputs),
        dtype,
        out_dtype: dtype,
        accumulate,
        bias: None,
        batch: Batch::ONE,
        varying: Varying::Rows,
    };
    // SAFETY: `dy` is `[rows, outputs]`, the weight `[outputs, inputs]`, `dx` `[rows, inputs]`.
    unsafe { gpu.gemm(&gemm) }
}

pub(super) fn backward_parameters(
    gpu: &Gpu,
    dy: &Tensor,
    x: &Tensor,
    dweight: Accumulator<'_>,
    dbias: Option<Accumulator<'_>>,
) -> Result<()> {
    let dtype = dy.dtype();
    let out_dtype = dweight.sum.dtype();
    let (rows, outputs) = dy.dims2()?;
    let inputs = x.dim(1)?;
    if rows == 0 {
        return [Some(dweight), dbias].into_iter().flatten().try_for_each(|sum| sum.begin().map(|_| ()));
    }
    let gemm = Gemm {
        m: outputs,
        n: inputs,
        k: rows,
        a: Operand::rows(gpu.input(dy, dtype)?, outputs).transposed(),
        b: Operand::rows(gpu.input(x, dtype)?, inputs),
        out: Operand::rows(gpu.output(dweight.sum, out_dtype)?, inputs),
        dtype,
        out_dtype,
        accumulate: dweight.begun,
        bias: None,
        batch: Batch::ONE,
        varying: Varying::Depth,
    };
    // SAFETY: `dy` is `[rows, outputs]`, `x` is `[rows, inputs]`; the gradients are `[outputs, inputs]` and
    // `[outputs]`.
    unsafe {
        match dbias {
            None => gpu.gemm(&gemm),
            Some(dbias) if out_dtype != DType::F32 => half_weight_and_bias(gpu, &gemm, dbias),
            Some(dbias) => weight_and_bias(gpu, &gemm, dbias),
        }
    }
}

/// Computes the gradient of a weight, and in the same product that of the bias: cuBLASLt sums the rows of
/// `dy`, which the product reads anyway. It can only overwrite the sums; if they must be added to, they are
/// computed into a temporary vector, which is then added. If cuBLASLt has no such product, a second kernel
/// reads `dy` again.
///
/// # Safety
/// As [`Gpu::gemm`]. The left operand of the product must be the transpose of `dy`, with a stride that the
/// kernel for column sums can read: that of a tensor's rows, or of padded rows.
pub(crate) unsafe fn weight_and_bias(gpu: &Gpu, of_weight: &Gemm, dbias: Accumulator<'_>) -> Result<()> {
    let partials = dbias.begun.then(|| Partials::new(gpu, 1, of_weight.m)).transpose()?;
    let sums = match &partials {
        None => gpu.output(dbias.sum, DType::F32)?,
        Some(partials) => partials.address(gpu)?,
    };
    // SAFETY: the caller's promise; the vector has a value for each row of the output.
    if unsafe { gpu.gemm_with_row_sums(of_weight, sums) }? {
        return partials.map_or(Ok(()), |partials| partials.add_to(gpu, [Some(dbias)]));
    }
    // SAFETY: the caller's promise.
    unsafe { gpu.gemm(of_weight) }?;
    // SAFETY: as above.
    unsafe { add_column_sums(gpu, of_weight.dtype, of_weight.a, of_weight.k, of_weight.m, dbias) }
}

/// As [`weight_and_bias`], for a weight whose gradient has a half type. cuBLASLt writes the sums in the type
/// of the product, so it computes only those for an accumulator of this type.
///
/// # Safety
/// As [`weight_and_bias`].
unsafe fn half_weight_and_bias(gpu: &Gpu, of_weight: &Gemm, dbias: Accumulator<'_>) -> Result<()> {
    let bias_dtype = dbias.sum.dtype();
    if bias_dtype == of_weight.out_dtype && !dbias.begun {
        // SAFETY: the caller's promise; the vector has a value for each row of the output.
        if unsafe { gpu.gemm_with_row_sums(of_weight, gpu.output(dbias.sum, bias_dtype)?) }? {
            return Ok(());
        }
    }
    // SAFETY: the caller's promise.
    unsafe { gpu.gemm(of_weight) }?;
    let Gemm { dtype, a, k: rows, m: outputs, .. } = *of_weight;
    if bias_dtype == DType::F32 {
        // SAFETY: the caller's promise.
        return unsafe { add_column_sums(gpu, dtype, a, rows, outputs, dbias) };
    }
    let sums = gpu.uninitialised(outputs, DType::F32)?;
    if dbias.begun {
        add::accumulate(dbias.sum, Accumulator { sum: &sums, begun: false })?;
    }
    // SAFETY: the caller's promise; both vectors have a value for each row of the output.
    unsafe {
        add_column_sums(gpu, dtype, a, rows, outputs, Accumulator { sum: &sums, begun: dbias.begun })?;
        gpu.round(gpu.input(&sums, DType::F32)?, dbias.sum)
    }
}

/// Adds the sum over the rows of a matrix to `into`, f32.
///
/// # Safety
/// The matrix must be stored as `[rows, cols]`; whether `matrix` is marked as transposed has no effect.
unsafe fn add_column_sums(
    gpu: &Gpu,
    dtype: DType,
    matrix: Operand,
    rows: usize,
    cols: usize,
    into: Accumulator<'_>,
) -> Result<()> {
    let blocks = row_blocks(rows, cols);
    let partials = Partials::new(gpu, blocks.count, cols)?;
    let lane_values = lane_values(matrix.stride, dtype, matrix.address);
    let args = ColumnSumsArgs {
        values: matrix.address,
        partials: partials.address(gpu)?,
        columns: Columns::of((rows, cols), blocks).with_stride(matrix.stride),
        lane_values: lane_values as u32,
    };
    // SAFETY: the matrix is `[rows, cols]`, and each block of rows has a row of partial sums.
    unsafe { gpu.launch(COLUMN_SUMS, Some(dtype), args.columns.grid_with_sums(lane_values), &args) }?;
    partials.add_to(gpu, [Some(into)])
}

/// Splits the rows into blocks, fewer if there are many columns: the columns of a vocabulary occupy the whole
/// GPU already, and each block of rows writes a partial sum for every column.
fn row_blocks(rows: usize, cols: usize) -> RowBlocks {
    /// Approximate number of blocks over rows and columns: eight for each multiprocessor of the largest GPU.
    const BLOCKS: usize = 1056;
    let down = (BLOCKS / cols.div_ceil(256).max(1)).max(1);
    RowBlocks::of(rows, rows.div_ceil(down).max(WARPS))
}

/// Number of values that a lane reads at once: those of 16 bytes if the alignment of rows allows it (they may
/// extend into the padding after the last column), else 2 or 1.
fn lane_values(stride: usize, dtype: DType, address: Address) -> usize {
    let pairs_fit = stride.is_multiple_of(2) && address.0.is_multiple_of(2 * dtype.size_in_bytes() as u64);
    if wide::flag(stride, dtype, &[address]) == 1 { wide::values(dtype) } else { 1 + usize::from(pairs_fit) }
}
