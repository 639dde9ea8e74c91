//! Gathering of rows and its transpose on the GPU; each row of the result is written once.

use candle_core::{Result, Tensor};

use crate::cuda::{Address, Gpu, Grid, Kernel, Kind, wide};
use crate::indices::Indices;
use crate::scatter::Scatter;

const FORWARD: Kernel = Kernel { op: "gather_rows", name: "gather_rows_forward" };
const BACKWARD: Kernel = Kernel { op: "gather_rows", name: "gather_rows_backward" };
const BACKWARD_ONTO: Kernel = Kernel { op: "gather_rows", name: "gather_rows_backward_onto" };
/// Number of warps in a block; each warp has one row.
const WARPS: usize = 8;

fn grid(rows: usize) -> Grid {
    Grid::of(rows.div_ceil(WARPS), 32 * WARPS as u32)
}

/// Same layout as `ForwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ForwardArgs {
    x: Address,
    positions: Address,
    y: Address,
    picked: i64,
    cols: i64,
    wide: u32,
}

pub(super) fn forward(gpu: &Gpu, x_td: &Tensor, positions: Indices<'_>) -> Result<Tensor> {
    let dtype = x_td.dtype();
    let cols = x_td.dims2()?.1;
    let picked = positions.len();
    let y_md = gpu.uninitialised((picked, cols), dtype)?;
    let (x, y) = (gpu.input(x_td, dtype)?, gpu.output(&y_md, dtype)?);
    let (positions, _numbers) = positions.on_gpu(gpu)?;
    let args = ForwardArgs {
        x,
        positions,
        y,
        picked: picked as i64,
        cols: cols as i64,
        wide: wide::flag(cols, dtype, &[x, y]),
    };
    // SAFETY: the positions are `[picked]` and were checked to be row indices of `x`; `y` is
    // `[picked, cols]`.
    unsafe { gpu.launch(FORWARD, Some(dtype), grid(picked), &args) }?;
    Ok(y_md)
}

/// Same layout as `BackwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct BackwardArgs {
    dy: Address,
    dx: Address,
    order: Address,
    piece_starts: Address,
    targets: Address,
    target_pieces: Address,
    count: i64,
    tokens: i64,
    cols: i64,
    wide: u32,
}

pub(super) fn backward(gpu: &Gpu, dy_md: &Tensor, positions: Indices<'_>, tokens: usize) -> Result<Tensor> {
    let dx_td = gpu.uninitialised((tokens, dy_md.dims2()?.1), dy_md.dtype())?;
    launch_backward(gpu, BACKWARD, dy_md, positions, &dx_td)?;
    Ok(dx_td)
}

pub(super) fn backward_onto(gpu: &Gpu, dy_md: &Tensor, positions: Indices<'_>, dx_td: &Tensor) -> Result<()> {
    launch_backward(gpu, BACKWARD_ONTO, dy_md, positions, dx_td)
}

/// Launches `kernel`, which either writes `dx` or adds to it.
fn launch_backward(
    gpu: &Gpu,
    kernel: Kernel,
    dy_md: &Tensor,
    positions: Indices<'_>,
    dx_td: &Tensor,
) -> Result<()> {
    let dtype = dy_md.dtype();
    let (tokens, cols) = dx_td.dims2()?;
    let groups = Scatter::planned_or_new(gpu, positions, None)?;
    let (dy, dx) = (gpu.input(dy_md, dtype)?, gpu.output(dx_td, dtype)?);
    let args = BackwardArgs {
        dy,
        dx,
        order: groups.order.address(Kind::U32)?,
        piece_starts: groups.piece_starts.address(Kind::U32)?,
        targets: groups.targets.address(Kind::U32)?,
        target_pieces: groups.target_pieces.address(Kind::U32)?,
        count: groups.count as i64,
        tokens: tokens as i64,
        cols: cols as i64,
        wide: wide::flag(cols, dtype, &[dy, dx]),
    };
    // SAFETY: the groups were made from the positions, one for each row of `dy`, which were checked to be
    // below `tokens`; `dx` is `[tokens, cols]`.
    unsafe { gpu.launch(kernel, Some(dtype), grid(tokens), &args) }
}
