//! Linear on the GPU: products of the library, and the column sums of the bias gradient.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::accumulator::Accumulator;
use crate::cuda::Address;
use crate::cuda::Gpu;
use crate::cuda::Kernel;
use crate::cuda::columns::Columns;
use crate::cuda::columns::WARPS;
use crate::cuda::gemm::Batch;
use crate::cuda::gemm::Bias;
use crate::cuda::gemm::Gemm;
use crate::cuda::gemm::Operand;
use crate::cuda::sums::Partials;
use crate::cuda::sums::RowBlocks;
use crate::cuda::wide;

const COLUMN_SUMS: Kernel = Kernel { op: "linear", name: "linear_column_sums" };

/// Twin of `ColumnSumsArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ColumnSumsArgs {
    values: Address,
    partials: Address,
    columns: Columns,
    lane_values: u32,
}

pub(super) fn forward(gpu: &Gpu, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (dtype, (rows, inputs), outputs) = (x.dtype(), x.dims2()?, weight.dim(0)?);
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
    };
    // SAFETY: `x` is `[rows, inputs]`, the weight `[outputs, inputs]`, the bias `[outputs]`, `y` `[rows,
    // outputs]`.
    unsafe { gpu.gemm(&gemm) }?;
    Ok(y)
}

/// A bias of any type that products add.
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
    let (dtype, (rows, outputs), inputs) = (dy.dtype(), dy.dims2()?, weight.dim(1)?);
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
    let (dtype, (rows, outputs), inputs) = (dy.dtype(), dy.dims2()?, x.dim(1)?);
    if rows == 0 {
        return [Some(dweight), dbias].into_iter().flatten().try_for_each(|sum| sum.begin().map(|_| ()));
    }
    let gemm = Gemm {
        m: outputs,
        n: inputs,
        k: rows,
        a: Operand::rows(gpu.input(dy, dtype)?, outputs).transposed(),
        b: Operand::rows(gpu.input(x, dtype)?, inputs),
        out: Operand::rows(gpu.output(dweight.sum, DType::F32)?, inputs),
        dtype,
        out_dtype: DType::F32,
        accumulate: dweight.begun,
        bias: None,
        batch: Batch::ONE,
    };
    // SAFETY: `dy` is `[rows, outputs]`, `x` `[rows, inputs]`, the gradients `[outputs, inputs]` and
    // `[outputs]` in f32.
    unsafe {
        match dbias {
            None => gpu.gemm(&gemm),
            Some(dbias) => weight_and_bias(gpu, &gemm, dbias),
        }
    }
}

/// The gradient of a weight, and with it that of the bias: cuBLASLt sums the rows of `dy`, which the product
/// reads anyway. It can only overwrite, so what is to be added goes by way of a vector; where it has no such
/// product, `dy` is read again.
///
/// # Safety
/// As [`Gpu::gemm`]; the left operand of the product is the transpose of `dy`, whose stride its kernels can
/// read at: rows of a tensor, or padded ones.
pub(crate) unsafe fn weight_and_bias(gpu: &Gpu, of_weight: &Gemm, dbias: Accumulator<'_>) -> Result<()> {
    let beside = dbias.begun.then(|| Partials::new(gpu, 1, of_weight.m)).transpose()?;
    let sums =
        beside.as_ref().map_or_else(|| gpu.output(dbias.sum, DType::F32), |beside| beside.address(gpu))?;
    // SAFETY: the caller's promise; the vector has a value for each row of the output.
    if unsafe { gpu.gemm_with_row_sums(of_weight, sums) }? {
        return beside.map_or(Ok(()), |beside| beside.add_to(gpu, [Some(dbias)]));
    }
    // SAFETY: the caller's promise.
    unsafe { gpu.gemm(of_weight) }?;
    // SAFETY: as above.
    unsafe { add_column_sums(gpu, of_weight.dtype, of_weight.a, (of_weight.k, of_weight.m), dbias) }
}

/// Adds the sum over the rows of a matrix to `into`, f32.
///
/// # Safety
/// The matrix, whether or not it is transposed elsewhere, lies in memory as `[rows, cols]`.
unsafe fn add_column_sums(
    gpu: &Gpu,
    dtype: DType,
    matrix: Operand,
    (rows, cols): (usize, usize),
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
    // SAFETY: the matrix is `[rows, cols]`, there is a row of partial sums for each block of rows.
    unsafe { gpu.launch(COLUMN_SUMS, Some(dtype), args.columns.grid_with_sums(lane_values), &args) }?;
    partials.add_to(gpu, [Some(into)])
}

/// Few blocks of rows where there are many columns: a vocabulary fills the GPU by itself, and each block of
/// rows writes a partial sum for every column.
fn row_blocks(rows: usize, cols: usize) -> RowBlocks {
    /// Blocks in both directions, about: eight for each processor of the largest GPU.
    const BLOCKS: usize = 1056;
    let down = (BLOCKS / cols.div_ceil(256).max(1)).max(1);
    RowBlocks::of(rows, rows.div_ceil(down).max(WARPS))
}

/// Values that a lane reads at once, past the last column into padding where there is some: 16 bytes; 2 where
/// rows allow no more; or 1.
fn lane_values(stride: usize, dtype: DType, address: Address) -> usize {
    let pairs_fit = stride.is_multiple_of(2) && address.0.is_multiple_of(2 * dtype.size_in_bytes() as u64);
    if wide::flag(stride, dtype, &[address]) == 1 { wide::values(dtype) } else { 1 + usize::from(pairs_fit) }
}
