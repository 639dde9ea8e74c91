//! The groups made on the GPU, for rows that the host has not seen: see `kernel.cu`.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::computed::AnyIndices;
use crate::cuda::Address;
use crate::cuda::Gpu;
use crate::cuda::Grid;
use crate::cuda::Kernel;
use crate::scatter::PIECE_ROWS;

const ORDER: Kernel = Kernel { op: "scatter", name: "scatter_order" };
const GROUP: Kernel = Kernel { op: "scatter", name: "scatter_group" };
/// Threads of a block of [`ORDER`], a row each.
const ORDER_THREADS: usize = 128;
/// Threads of the one block of [`GROUP`].
const GROUP_THREADS: usize = 512;
/// Stands for no row at all.
pub(super) const NO_ROW: u32 = u32::MAX;

/// Twin of `OrderArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct OrderArgs {
    rows: Address,
    order: Address,
    ranks: Address,
    count: u32,
    skip: u32,
}

/// Twin of `GroupArgs` in `kernel.cu`.
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

/// The arrays of [`super::Groups`] in their order, u32, as long as they are for rows that all differ. Behind
/// what `Groups` holds stand: in `order` the skipped rows, in `targets` [`NO_ROW`], in the others their last
/// number again, so that a piece or a target that does not exist is empty.
pub(super) fn groups(gpu: &Gpu, rows: AnyIndices<'_>, skip: Option<u32>) -> Result<[Tensor; 4]> {
    let count = rows.len();
    let room = |len| gpu.uninitialised(len, DType::U32);
    let groups = [room(count)?, room(count + 1)?, room(count)?, room(count + 1)?];
    let ranks = room(count)?;
    let at = |t: &Tensor| gpu.output(t, DType::U32);
    let [order, piece_starts, targets, target_pieces] = groups.each_ref();
    let (rows, _rows) = rows.on_gpu(gpu)?;
    let (order, ranks) = (at(order)?, at(&ranks)?);
    let args = OrderArgs { rows, order, ranks, count: count as u32, skip: skip.unwrap_or(NO_ROW) };
    let grid = Grid::of(count.div_ceil(ORDER_THREADS), ORDER_THREADS as u32);
    // SAFETY: the rows, their order and the ranks are `[count]`.
    unsafe { gpu.launch(ORDER, None, grid.with_shared(ORDER_THREADS * size_of::<u32>()), &args) }?;
    let args = GroupArgs {
        rows,
        order,
        ranks,
        piece_starts: at(piece_starts)?,
        targets: at(targets)?,
        target_pieces: at(target_pieces)?,
        count: count as u32,
        piece_rows: PIECE_ROWS as u32,
    };
    let grid = Grid::of(1, GROUP_THREADS as u32).with_shared(GROUP_THREADS / 32 * size_of::<u32>());
    // SAFETY: as above; the targets are `[count]`, both arrays of bounds `[count + 1]`.
    unsafe { gpu.launch(GROUP, None, grid, &args) }?;
    Ok(groups)
}
