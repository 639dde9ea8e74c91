//! Rotary position embedding on the GPU, in place; one block processes some heads of a tile of a segment.

use candle_core::{DType, Result, Tensor};

use crate::attention::Tiles;
use crate::cuda::{Address, Gpu, Grid, Kernel, Kind, wide};
use crate::indices::Indices;

const ROTATE: Kernel = Kernel { op: "rotary", name: "rotary_rotate" };
/// Number of heads of a block: the same as `HEADS` in `kernel.cu`.
const HEADS: usize = 4;

/// Same layout as `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    x: Address,
    table: Address,
    tiles: Address,
    heads: u32,
    head_size: u32,
    sign: f32,
    wide: u32,
}

pub(super) fn rotate(
    gpu: &Gpu,
    x_td: &Tensor,
    cu_seqlens: Indices<'_>,
    table_pk: &Tensor,
    sign: f32,
) -> Result<()> {
    let dtype = x_td.dtype();
    let head_size = table_pk.dims2()?.1;
    let heads = x_td.dims2()?.1 / head_size;
    let tiles = Tiles::of(gpu, cu_seqlens)?;
    let (x, table) = (gpu.output(x_td, dtype)?, gpu.input(table_pk, DType::F32)?);
    let args = Args {
        x,
        table,
        tiles: tiles.bounds.address(Kind::U32)?,
        heads: heads as u32,
        head_size: head_size as u32,
        sign,
        // A 16-byte access must not cross the halves of a head.
        wide: wide::flag(head_size / 2, dtype, &[x, table]),
    };
    let blocks = [tiles.count as u32, heads.div_ceil(HEADS) as u32, 1];
    let grid = Grid { blocks, threads: 256, shared_bytes: 0 };
    // SAFETY: `x` is `[T, heads * head_size]`, the tiles are inside the segments, which end at `T`, and the
    // table has a row for each position of the longest segment: the caller has checked all of this.
    unsafe { gpu.launch(ROTATE, Some(dtype), grid, &args) }
}
