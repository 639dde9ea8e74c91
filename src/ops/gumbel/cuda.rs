//! Gumbel-max on the GPU: one block for each row; the noise stays in registers.

use candle_core::{DType, Result, Tensor};

use crate::cuda::gemm::Operand;
use crate::cuda::{Address, Gpu, Grid, Kernel};
use crate::indices::Indices;
use base::rng::Stream;

const SAMPLE: Kernel = Kernel { op: "gumbel", name: "gumbel_sample" };

/// Same layout as `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    logits: Address,
    keys: Address,
    ids: Address,
    cols: i64,
    stride: i64,
    key: [u32; 2],
    id: [u32; 2],
    wide: u32,
}

pub(super) fn sample(
    gpu: &Gpu,
    logits_mv: &Tensor,
    stream: &Stream,
    keys: Indices<'_, u64>,
) -> Result<Tensor> {
    let dtype = logits_mv.dtype();
    let (rows, cols) = logits_mv.dims2()?;
    let ids = gpu.uninitialised(rows, DType::U32)?;
    if rows > 0 {
        let (keys, _kept) = keys.on_gpu(gpu)?;
        let logits = Operand::rows(gpu.input(logits_mv, dtype)?, cols);
        let at = gpu.output(&ids, DType::U32)?;
        // SAFETY: the logits are `[rows, cols]`, and each row has a key and an id.
        unsafe { sample_rows(gpu, dtype, logits, [rows, cols], stream, keys, at) }?;
    }
    Ok(ids)
}

/// Draws one id for each row of a matrix of logits with the shape `[rows, cols]`; `rows` must not be 0.
///
/// # Safety
/// `logits` must be such a matrix of type `dtype`; `keys` and `ids` must have `rows` elements.
pub(crate) unsafe fn sample_rows(
    gpu: &Gpu,
    dtype: DType,
    logits: Operand,
    [rows, cols]: [usize; 2],
    stream: &Stream,
    keys: Address,
    ids: Address,
) -> Result<()> {
    let (key, id) = stream.counter();
    // The wide kernel reads four values at once: 16 bytes of f32, 8 of bf16 or f16.
    let Operand { address, stride, .. } = logits;
    let wide = stride.is_multiple_of(4) && address.0.is_multiple_of(4 * dtype.size_in_bytes() as u64);
    let args = Args {
        logits: address,
        keys,
        ids,
        cols: cols as i64,
        stride: stride as i64,
        key,
        id,
        wide: u32::from(wide),
    };
    let threads = cols.div_ceil(4).next_multiple_of(32).min(256) as u32;
    // SAFETY: the caller's promise.
    unsafe {
        gpu.launch(SAMPLE, Some(dtype), Grid::of(rows, threads).with_shared(2 * 32 * size_of::<f32>()), &args)
    }
}
