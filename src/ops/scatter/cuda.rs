//! Computes the groups on the GPU, for rows that the host does not have: see `kernel.cu`.

use candle_core::{DType, Result, Tensor};

use crate::computed::AnyIndices;
use crate::cuda::{Address, Gpu, Grid, Kernel};
use crate::scatter::PIECE_ROWS;

const ORDER: Kernel = Kernel { op: "scatter", name: "scatter_order" };
const GROUP: Kernel = Kernel { op: "scatter", name: "scatter_group" };
/// Number of threads in a block of [`ORDER`]; each thread has one row.
const ORDER_THREADS: usize = 128;
/// Number of threads in the only block of [`GROUP`].
const GROUP_THREADS: usize = 512;
/// A number that no row has.
pub(super) const NO_ROW: u32 = u32::MAX;

/// Same layout as `OrderArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct OrderArgs {
    rows: Address,
    order: Address,
    ranks: Address,
    count: u32,
    skip: u32,
}

/// Same layout as `GroupArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct GroupArgs {
    rows: Address,
    order: Address,
    ranks: Address,
    piece_starts: Address,
    targets: Address,
    target_pieces: Address,
    count: u32,
    piece_rows: u32,
}

/// Returns the arrays of [`super::Groups`], in the order of its fields, as u32 tensors with the lengths that
/// they would have if all rows differed. The padding at their ends is: in `order` the skipped rows, in
/// `targets` [`NO_ROW`], in the other two their last number, so that the additional pieces and targets are
/// empty.
pub(super) fn groups(gpu: &Gpu, rows: AnyIndices<'_>, skip: Option<u32>) -> Result<[Tensor; 4]> {
    let count = rows.len();
    let groups = [
        gpu.uninitialised(count, DType::U32)?,
        gpu.uninitialised(count + 1, DType::U32)?,
        gpu.uninitialised(count, DType::U32)?,
        gpu.uninitialised(count + 1, DType::U32)?,
    ];
    let ranks = gpu.uninitialised(count, DType::U32)?;
    let [order, piece_starts, targets, target_pieces] = groups.each_ref();
    let (rows, _rows) = rows.on_gpu(gpu)?;
    let order = gpu.output(order, DType::U32)?;
    let ranks = gpu.output(&ranks, DType::U32)?;
    let args = OrderArgs { rows, order, ranks, count: count as u32, skip: skip.unwrap_or(NO_ROW) };
    let grid = Grid::of(count.div_ceil(ORDER_THREADS), ORDER_THREADS as u32);
    // SAFETY: the rows, their order and the ranks are `[count]`.
    unsafe { gpu.launch(ORDER, None, grid.with_shared(ORDER_THREADS * size_of::<u32>()), &args) }?;
    let args = GroupArgs {
        rows,
        order,
        ranks,
        piece_starts: gpu.output(piece_starts, DType::U32)?,
        targets: gpu.output(targets, DType::U32)?,
        target_pieces: gpu.output(target_pieces, DType::U32)?,
        count: count as u32,
        piece_rows: PIECE_ROWS as u32,
    };
    let grid = Grid::of(1, GROUP_THREADS as u32).with_shared(GROUP_THREADS / 32 * size_of::<u32>());
    // SAFETY: as above; `targets` is `[count]`, `piece_starts` and `target_pieces` are `[count + 1]`.
    unsafe { gpu.launch(GROUP, None, grid, &args) }?;
    Ok(groups)
}
