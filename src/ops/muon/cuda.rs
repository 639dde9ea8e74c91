//! Muon on the GPU: products by cuBLASLt, one matrix after the other, with a pass over the matrix between
//! them.

use candle_core::{DType, Result, Tensor};

use crate::cuda::gemm::{Batch, Gemm, Operand, Varying};
use crate::cuda::{Address, Gpu, Kernel};
use crate::muon::Settings;
use crate::update::cuda::{CHUNK, Update, UpdateArgs, grid};
use crate::update::{Buffers, Groups, Hyper};

const AVERAGE: Kernel = Kernel { op: "muon", name: "muon_average" };
const SCALE: Kernel = Kernel { op: "muon", name: "muon_scale" };
const ROUND: Kernel = Kernel { op: "muon", name: "muon_round" };
const POLYNOMIAL: Kernel = Kernel { op: "muon", name: "muon_polynomial" };
const EXPAND: Kernel = Kernel { op: "muon", name: "muon_expand" };
const CHANGE: Kernel = Kernel { op: "muon", name: "muon_change" };

/// Same layout as `MuonArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct MuonArgs {
    update: UpdateArgs,
    sums: Address,
    x: Address,
    gram: Address,
    square: Address,
    index: i64,
    gram_values: i64,
    share: f32,
    step_size: f32,
    is_first: u32,
    padding: u32,
}

/// Memory for the largest matrix; see `Room` in `cpu.rs`.
struct Room {
    sums: Tensor,
    x: Tensor,
    gram: Tensor,
    square: Tensor,
}

impl Room {
    fn new(gpu: &Gpu, shapes: &[[usize; 2]], dtype: DType) -> Result<Self> {
        let largest = shapes.iter().map(|[rows, cols]| rows * cols).max().unwrap_or(0);
        let smaller = shapes.iter().map(|[rows, cols]| *rows.min(cols)).max().unwrap_or(0);
        Ok(Self {
            sums: gpu.uninitialised(largest, DType::F32)?,
            x: gpu.uninitialised(largest, dtype)?,
            gram: gpu.uninitialised(smaller * smaller, dtype)?,
            square: gpu.uninitialised(smaller * smaller, DType::F32)?,
        })
    }
}

pub(super) fn update(
    gpu: &Gpu,
    buffers: Buffers<'_, 1>,
    groups: Groups<'_>,
    shapes: &[[usize; 2]],
    hyper: &Hyper,
    settings: &Settings,
) -> Result<()> {
    // The kernels take the decay of the momentum from the first beta.
    let averaging = Hyper { beta1: settings.momentum, ..*hyper };
    let scales: Vec<f32> = groups.list.iter().map(|group| group.lr_scale).collect();
    let Some(mut update) = Update::new(gpu, &buffers, groups, &averaging, 1.0)? else { return Ok(()) };
    let dtype = update.dtype;
    let room = Room::new(gpu, shapes, dtype)?;
    let squares = gpu.uninitialised(update.table.chunks, DType::F64)?;
    let scale = gpu.uninitialised(1, DType::F32)?;
    update.args.squares = gpu.output(&squares, DType::F64)?;
    update.args.step_sizes = gpu.output(&scale, DType::F32)?;
    for (index, (&shape, lr_scale)) in shapes.iter().zip(scales).enumerate() {
        let smaller = shape[0].min(shape[1]);
        let args = MuonArgs {
            update: update.args,
            sums: gpu.output(&room.sums, DType::F32)?,
            x: gpu.output(&room.x, dtype)?,
            gram: gpu.output(&room.gram, dtype)?,
            square: gpu.output(&room.square, DType::F32)?,
            index: index as i64,
            gram_values: (smaller * smaller) as i64,
            share: if settings.nesterov { settings.momentum as f32 } else { 1.0 },
            step_size: (hyper.lr * settings.adjust_lr.ratio(shape)) as f32 * lr_scale,
            is_first: 1,
            padding: 0,
        };
        let blocks = grid((shape[0] * shape[1]).div_ceil(CHUNK));
        // SAFETY: the segment is a matrix of this shape, of which `sums` and `x` have all values; `gram` and
        // `square` have those of `[smaller, smaller]`, `squares` one for each chunk. Each buffer is written
        // before it is read.
        unsafe {
            gpu.launch(AVERAGE, None, blocks, &args)?;
            gpu.launch(SCALE, None, grid(1), &args)?;
            gpu.launch(ROUND, Some(dtype), blocks, &args)?;
            for _ in 0..settings.ns_steps {
                step(gpu, shape, dtype, &MuonArgs { is_first: 0, ..args })?;
            }
            gpu.launch(CHANGE, Some(dtype), blocks, &args)?;
        }
    }
    Ok(())
}

/// Replaces `x` by the next matrix of the Newton-Schulz iteration.
///
/// # Safety
/// `sums` and `x` must have the values of a matrix of this shape, `gram` and `square` those of the smaller of
/// its products.
unsafe fn step(gpu: &Gpu, [rows, cols]: [usize; 2], dtype: DType, args: &MuonArgs) -> Result<()> {
    let is_wide = rows <= cols;
    let smaller = rows.min(cols);
    let x = Operand::rows(args.x, cols);
    let gram = Operand::rows(args.gram, smaller);
    let product = Gemm {
        m: smaller,
        n: smaller,
        k: rows.max(cols),
        a: if is_wide { x } else { x.transposed() },
        b: if is_wide { x.transposed() } else { x },
        out: gram,
        dtype,
        out_dtype: dtype,
        accumulate: false,
        bias: None,
        batch: Batch::ONE,
        varying: Varying::Nothing,
    };
    let square = Gemm {
        k: smaller,
        a: gram,
        b: gram,
        out: Operand::rows(args.square, smaller),
        out_dtype: DType::F32,
        ..product
    };
    let next = Gemm {
        m: rows,
        n: cols,
        k: smaller,
        a: if is_wide { gram } else { x },
        b: if is_wide { x } else { gram },
        out: Operand::rows(args.sums, cols),
        out_dtype: DType::F32,
        accumulate: true,
        ..product
    };
    let blocks = grid((rows * cols).div_ceil(CHUNK));
    // SAFETY: the caller's promise.
    unsafe {
        gpu.gemm(&product)?;
        gpu.gemm(&square)?;
        gpu.launch(POLYNOMIAL, Some(dtype), grid((smaller * smaller).div_ceil(CHUNK)), args)?;
        gpu.launch(EXPAND, Some(dtype), blocks, args)?;
        gpu.gemm(&next)?;
        gpu.launch(ROUND, Some(dtype), blocks, args)
    }
}
