//! The sum of embeddings on the GPU, and the gradient of a table without atomics: see `kernel.cu`.

use candle_core::{DType, Result, Tensor};

use crate::computed::AnyIndices;
use crate::cuda::{Address, Gpu, Grid, Kernel, Kind, wide};
use crate::embedding::{Ids, Tables};
use crate::scatter::{PIECE_ROWS, Scatter};

const FORWARD: Kernel = Kernel { op: "embedding", name: "embedding_forward" };
const SUM_PIECES: Kernel = Kernel { op: "embedding", name: "embedding_sum_pieces" };
const ADD_PIECES: Kernel = Kernel { op: "embedding", name: "embedding_add_pieces" };
/// Number of warps in a block of the forward kernel; each warp has one token.
const WARPS: usize = 8;
/// Number of threads in a block of the backward kernels.
const THREADS: usize = 128;

/// Same layout as `ForwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ForwardArgs {
    ids: [Address; 3],
    tables: [Address; 3],
    y: Address,
    tokens: i64,
    cols: i64,
    wide: u32,
}

pub(super) fn forward(gpu: &Gpu, ids: Ids<'_>, tables: &Tables<'_>, dtype: DType) -> Result<Tensor> {
    let (tokens, cols) = (ids.word.len(), tables.word_vd.dim(1)?);
    let y_td = gpu.uninitialised((tokens, cols), dtype)?;
    let y = gpu.output(&y_td, dtype)?;
    let [word, position, kind] =
        [ids.word.on_gpu(gpu)?, ids.position.on_gpu(gpu)?, ids.token_type.on_gpu(gpu)?];
    let [word_vd, position_pd, type_nd] = [Some(tables.word_vd), tables.position_pd, tables.type_nd]
        .map(|table| table.map_or(Ok(Address::NULL), |t| gpu.input(t, DType::F32)));
    let tables = [word_vd?, position_pd?, type_nd?];
    let args = ForwardArgs {
        ids: [word.0, position.0, kind.0],
        tables,
        y,
        tokens: tokens as i64,
        cols: cols as i64,
        wide: wide::flag(cols, DType::F32, &[tables[0], tables[1], tables[2], y]),
    };
    // SAFETY: the ids are `[tokens]` each. They are below the number of rows of their tables: that was
    // checked, or the op that computed them promises it. The tables are `[_, cols]` or null, and `y` is
    // `[tokens, cols]`.
    unsafe { gpu.launch(FORWARD, Some(dtype), Grid::of(tokens.div_ceil(WARPS), 32 * WARPS as u32), &args) }?;
    Ok(y_td)
}

/// Same layout as `BackwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct BackwardArgs {
    dy: Address,
    ids: Address,
    order: Address,
    piece_starts: Address,
    target_pieces: Address,
    dtable: Address,
    partials: Address,
    pieces: i64,
    cols: i64,
    wide: u32,
}

/// Adds the gradient of one table to `dtable`.
pub(super) fn backward(
    gpu: &Gpu,
    dy_td: &Tensor,
    ids: AnyIndices<'_>,
    padding: Option<u32>,
    dtable: &Tensor,
) -> Result<()> {
    let dtype = dy_td.dtype();
    let (tokens, cols) = dy_td.dims2()?;
    let groups = Scatter::planned_or_new(gpu, ids, padding)?;
    let (numbers, _numbers) = ids.on_gpu(gpu)?;
    // Partial sums are only needed if an id may have several pieces.
    let partials_rows = if groups.splits { 2 * (tokens / PIECE_ROWS + 1) } else { 0 };
    let partials_td = gpu.uninitialised((partials_rows, cols), DType::F32)?;
    let (dy, partials) = (gpu.input(dy_td, dtype)?, gpu.output(&partials_td, DType::F32)?);
    let into = gpu.output(dtable, DType::F32)?;
    let args = BackwardArgs {
        dy,
        ids: numbers,
        order: groups.order.address(Kind::U32)?,
        piece_starts: groups.piece_starts.address(Kind::U32)?,
        target_pieces: groups.target_pieces.address(Kind::U32)?,
        dtable: into,
        partials,
        pieces: groups.pieces as i64,
        cols: cols as i64,
        wide: wide::flag(cols, dtype, &[dy, into, if groups.splits { partials } else { dy }]),
    };
    let values = if args.wide == 0 { 1 } else { wide::values(dtype) };
    // SAFETY: the groups were made from the ids, which are `[tokens]` and row indices of the table, as in
    // `forward`; `dy` is `[tokens, cols]`, the table is `[_, cols]`; there are as many rows of partial sums
    // as `slot` in `kernel.cu` can address.
    unsafe { gpu.launch(SUM_PIECES, Some(dtype), grid(groups.pieces, cols, values), &args) }?;
    if groups.splits {
        // SAFETY: as above.
        unsafe { gpu.launch(ADD_PIECES, None, grid(groups.count, cols, 1), &args) }?;
    }
    Ok(())
}

/// `blocks` blocks for each group of columns; a thread has `values` of the `cols` columns.
fn grid(blocks: usize, cols: usize, values: usize) -> Grid {
    Grid {
        blocks: [blocks as u32, cols.div_ceil(THREADS * values) as u32, 1],
        threads: THREADS as u32,
        shared_bytes: 0,
    }
}
