//! Replacement of masked ids by drawn ones on the GPU: one kernel copies all ids, a second one writes the
//! drawn ones.

use candle_core::{DType, Result, Tensor};

use crate::computed::Computed;
use crate::cuda::{Address, Gpu, Grid, Kernel};
use crate::replace_tokens::{Masked, Replaced};

const COPY: Kernel = Kernel { op: "replace_tokens", name: "replace_tokens_copy" };
const PUT: Kernel = Kernel { op: "replace_tokens", name: "replace_tokens_put" };
const THREADS: usize = 256;

/// Same layout as `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    from: Address,
    positions: Address,
    originals: Address,
    drawn: Address,
    ids: Address,
    replaced: Address,
    tokens: i64,
    masked: i64,
    vocabulary: u32,
}

pub(super) fn forward(
    gpu: &Gpu,
    masked: Masked<'_>,
    drawn_m: &Tensor,
    vocabulary: usize,
) -> Result<Replaced> {
    let tokens = masked.ids.len();
    let drawn = masked.positions.len();
    let ids = gpu.uninitialised(tokens, DType::U32)?;
    let replaced = gpu.uninitialised(tokens, DType::U32)?;
    let [from, positions, originals] =
        [masked.ids.on_gpu(gpu)?, masked.positions.on_gpu(gpu)?, masked.originals.on_gpu(gpu)?];
    let args = Args {
        from: from.0,
        positions: positions.0,
        originals: originals.0,
        drawn: gpu.input(drawn_m, DType::U32)?,
        ids: gpu.output(&ids, DType::U32)?,
        replaced: gpu.output(&replaced, DType::U32)?,
        tokens: tokens as i64,
        masked: drawn as i64,
        vocabulary: vocabulary as u32,
    };
    // SAFETY: the old and the new ids and `replaced` are `[tokens]`.
    unsafe { gpu.launch(COPY, None, grid(tokens), &args) }?;
    // SAFETY: positions, originals and drawn ids were checked to have equal lengths, and the positions to be
    // below `tokens`.
    unsafe { gpu.launch(PUT, None, grid(drawn), &args) }?;
    Ok(Replaced { ids: Computed::on_gpu(ids), replaced: Computed::on_gpu(replaced) })
}

/// One thread for each of `count` ids.
fn grid(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS), THREADS as u32)
}
