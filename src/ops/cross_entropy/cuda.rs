//! Softmax cross-entropy on the GPU: a pass over the rows each way; nothing is read back.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::cross_entropy::Entropy;
use crate::cuda::Address;
use crate::cuda::Gpu;
use crate::cuda::Grid;
use crate::cuda::Kernel;
use crate::cuda::gemm::Operand;
use crate::indices::Indices;

const FORWARD: Kernel = Kernel { op: "cross_entropy", name: "cross_entropy_forward" };
const TOTALS: Kernel = Kernel { op: "cross_entropy", name: "cross_entropy_totals" };
const BACKWARD: Kernel = Kernel { op: "cross_entropy", name: "cross_entropy_backward" };

/// Size of `Room` in `row.cuh`, and some.
pub(crate) const ROOM_BYTES: usize = 32 * 16 + 16;

/// Threads for a row of so many columns, 8 or more columns each where there are enough.
pub(crate) fn row_threads(classes: usize) -> u32 {
    (classes / 8).next_multiple_of(32).clamp(32, 512) as u32
}

/// Twin of `ForwardArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ForwardArgs {
    logits: Address,
    labels: Address,
    found: Address,
    log_sum_exp: Address,
    cols: i64,
    stride: i64,
}

/// Twin of `TotalsArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct TotalsArgs {
    found: Address,
    totals: Address,
    rows: i64,
}

/// Twin of `BackwardArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct BackwardArgs {
    logits: Address,
    labels: Address,
    log_sum_exp: Address,
    cols: i64,
    scale: f32,
}

/// What rows of logits come to, written by one or several launches.
pub(crate) struct Found {
    /// Loss and score of each row, f64 `[M, 2]`.
    rows: Tensor,
    log_sum_exp_m: Tensor,
}

/// Where the rows from some number on write what they come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundAt {
    /// Two f64 a row.
    pub(crate) rows: Address,
    /// An f32 a row.
    pub(crate) log_sum_exp: Address,
}

impl Found {
    /// Room for so many rows.
    pub(crate) fn new(gpu: &Gpu, rows: usize) -> Result<Self> {
        Ok(Self {
            rows: gpu.uninitialised((rows, 2), DType::F64)?,
            log_sum_exp_m: gpu.uninitialised(rows, DType::F32)?,
        })
    }

    /// The place of row `first`.
    pub(crate) fn at(&self, gpu: &Gpu, first: usize) -> Result<FoundAt> {
        Ok(FoundAt {
            rows: gpu.output(&self.rows, DType::F64)?.plus(first * 2 * size_of::<f64>()),
            log_sum_exp: gpu.output(&self.log_sum_exp_m, DType::F32)?.plus(first * size_of::<f32>()),
        })
    }

    /// The totals of all rows, once every one is written.
    pub(crate) fn entropy(self, gpu: &Gpu) -> Result<Entropy> {
        let totals = gpu.uninitialised(2, DType::F64)?;
        let args = TotalsArgs {
            found: gpu.input(&self.rows, DType::F64)?,
            totals: gpu.output(&totals, DType::F64)?,
            rows: self.rows.dim(0)? as i64,
        };
        let grid = Grid::of(1, 512).with_shared(16 * size_of::<f64>());
        // SAFETY: there are two values for each row, and two totals.
        unsafe { gpu.launch(TOTALS, None, grid, &args) }?;
        Ok(Entropy { totals, log_sum_exp_m: self.log_sum_exp_m })
    }
}

pub(super) fn forward(gpu: &Gpu, logits_mv: &Tensor, labels: Indices<'_>) -> Result<Entropy> {
    let rows = logits_mv.dim(0)?;
    let found = Found::new(gpu, rows)?;
    if rows > 0 {
        let (labels, _kept) = labels.on_gpu(gpu)?;
        let (shape, dtype) = (logits_mv.dims2()?, logits_mv.dtype());
        let logits = Operand::rows(gpu.input(logits_mv, dtype)?, shape.1);
        // SAFETY: there are `rows` logits rows, labels and places for what they come to; the labels were
        // checked.
        unsafe { forward_rows(gpu, dtype, logits, shape, labels, found.at(gpu, 0)?) }?;
    }
    found.entropy(gpu)
}

/// Loss and score of `rows` rows of `cols` logits.
///
/// # Safety
/// The logits are such a matrix of type `dtype`; there are as many labels, all below `cols`, and places to
/// write to.
pub(crate) unsafe fn forward_rows(
    gpu: &Gpu,
    dtype: DType,
    logits: Operand,
    (rows, cols): (usize, usize),
    labels: Address,
    found: FoundAt,
) -> Result<()> {
    let args = ForwardArgs {
        logits: logits.address,
        labels,
        found: found.rows,
        log_sum_exp: found.log_sum_exp,
        cols: cols as i64,
        stride: logits.stride as i64,
    };
    // SAFETY: the caller's promise.
    unsafe {
        gpu.launch(FORWARD, Some(dtype), Grid::of(rows, row_threads(cols)).with_shared(ROOM_BYTES), &args)
    }
}

pub(super) fn backward(
    gpu: &Gpu,
    logits_mv: &Tensor,
    labels: Indices<'_>,
    log_sum_exp_m: &Tensor,
    scale: f32,
) -> Result<()> {
    /// Columns of a block, about: a few rounds of wide loads for each thread.
    const BLOCK_COLUMNS: usize = 16 * 1024;
    let (rows, cols) = logits_mv.dims2()?;
    if rows == 0 {
        return Ok(());
    }
    let (labels, _kept) = labels.on_gpu(gpu)?;
    let args = BackwardArgs {
        logits: gpu.output(logits_mv, logits_mv.dtype())?,
        labels,
        log_sum_exp: gpu.input(log_sum_exp_m, DType::F32)?,
        cols: cols as i64,
        scale,
    };
    let parts = cols.div_ceil(BLOCK_COLUMNS).min(65_535) as u32;
    let grid = Grid::of(rows, row_threads(cols));
    // SAFETY: the logits are `[rows, cols]`, there is a label and a log-sum-exp for each row.
    unsafe {
        gpu.launch(
            BACKWARD,
            Some(logits_mv.dtype()),
            Grid { blocks: [grid.blocks[0], parts, 1], ..grid },
            &args,
        )
    }
}
