//! Softmax cross-entropy on the GPU: one pass over the rows in forward, one in backward; nothing is copied to
//! the host.

use candle_core::{DType, Result, Tensor};

use crate::cross_entropy::Entropy;
use crate::cuda::gemm::Operand;
use crate::cuda::{Address, Gpu, Grid, Kernel};
use crate::indices::Indices;

const FORWARD: Kernel = Kernel { op: "cross_entropy", name: "cross_entropy_forward" };
const TOTALS: Kernel = Kernel { op: "cross_entropy", name: "cross_entropy_totals" };
const BACKWARD: Kernel = Kernel { op: "cross_entropy", name: "cross_entropy_backward" };

/// At least the size of `Room` in `row.cuh`.
pub(crate) const ROOM_BYTES: usize = 32 * 16 + 16;

/// Number of threads for a row of `classes` columns: about one for 8 columns, from 32 to 512.
pub(crate) fn row_threads(classes: usize) -> u32 {
    (classes / 8).next_multiple_of(32).clamp(32, 512) as u32
}

/// Same layout as `ForwardArgs` in `kernel.cu`.
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

/// Same layout as `TotalsArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct TotalsArgs {
    found: Address,
    totals: Address,
    rows: i64,
}

/// Same layout as `BackwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct BackwardArgs {
    logits: Address,
    labels: Address,
    log_sum_exp: Address,
    cols: i64,
    scale: f32,
}

/// The results of rows of logits, written by one or several launches.
pub(crate) struct Found {
    /// Loss, and 1 if the prediction is correct, else 0, for each row: f64 `[M, 2]`.
    rows: Tensor,
    log_sum_exp_m: Tensor,
}

/// The addresses to which a launch writes the results of its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundAt {
    /// Two f64 per row.
    pub(crate) rows: Address,
    /// One f32 per row.
    pub(crate) log_sum_exp: Address,
}

impl Found {
    /// Allocates memory for the results of `rows` rows.
    pub(crate) fn new(gpu: &Gpu, rows: usize) -> Result<Self> {
        Ok(Self {
            rows: gpu.uninitialised((rows, 2), DType::F64)?,
            log_sum_exp_m: gpu.uninitialised(rows, DType::F32)?,
        })
    }

    /// The addresses of the results of row `first`.
    pub(crate) fn addresses(&self, gpu: &Gpu, first: usize) -> Result<FoundAt> {
        Ok(FoundAt {
            rows: gpu.output(&self.rows, DType::F64)?.plus(first * 2 * size_of::<f64>()),
            log_sum_exp: gpu.output(&self.log_sum_exp_m, DType::F32)?.plus(first * size_of::<f32>()),
        })
    }

    /// Adds the results of all rows; every row must have been written by an earlier launch.
    pub(crate) fn entropy(self, gpu: &Gpu) -> Result<Entropy> {
        let totals = gpu.uninitialised(2, DType::F64)?;
        let args = TotalsArgs {
            found: gpu.input(&self.rows, DType::F64)?,
            totals: gpu.output(&totals, DType::F64)?,
            rows: self.rows.dim(0)? as i64,
        };
        let grid = Grid::of(1, 512).with_shared(16 * size_of::<f64>());
        // SAFETY: each row has two values, and there are two totals.
        unsafe { gpu.launch(TOTALS, None, grid, &args) }?;
        Ok(Entropy { totals, log_sum_exp_m: self.log_sum_exp_m })
    }
}

pub(super) fn forward(gpu: &Gpu, logits_mv: &Tensor, labels: Indices<'_>) -> Result<Entropy> {
    let rows = logits_mv.dim(0)?;
    let found = Found::new(gpu, rows)?;
    if rows > 0 {
        let (labels, _kept) = labels.on_gpu(gpu)?;
        let cols = logits_mv.dim(1)?;
        let dtype = logits_mv.dtype();
        let logits = Operand::rows(gpu.input(logits_mv, dtype)?, cols);
        // SAFETY: there are `rows` rows of logits, labels and results; the labels were checked.
        unsafe { forward_rows(gpu, dtype, logits, rows, cols, labels, found.addresses(gpu, 0)?) }?;
    }
    found.entropy(gpu)
}

/// Computes the results of `rows` rows of `cols` logits.
///
/// # Safety
/// `logits` must be such a matrix of type `dtype`; `labels` must have `rows` values below `cols`, and `found`
/// room for the results of `rows` rows.
pub(crate) unsafe fn forward_rows(
    gpu: &Gpu,
    dtype: DType,
    logits: Operand,
    rows: usize,
    cols: usize,
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
    /// Approximate number of columns of a block: a few wide loads for each thread.
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
    // SAFETY: the logits are `[rows, cols]`, and each row has a label and a log-sum-exp.
    unsafe {
        gpu.launch(
            BACKWARD,
            Some(logits_mv.dtype()),
            Grid { blocks: [grid.blocks[0], parts, 1], ..grid },
            &args,
        )
    }
}
