//! Splits a product into tasks and tasks into tiles, and packs operands so that a tile reads them
//! sequentially.
//!
//! A task computes a block of the output: it packs its columns of `b` (and its rows of `a` if the kernel
//! cannot read them in place) into buffers of its thread, for a piece of the depth that stays in the L2
//! cache, then runs the tiles of its block. If several tasks would pack the same columns (or rows, if the
//! kernel asks for it), all threads pack these first, for all tasks. The result does not depend on which task
//! computes an element: pieces of the depth are determined by the depth alone.

use std::ops::Range;

use candle_core::DType;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::packing::{Buffer, Buffers, Packed, Rows, Strips, with_buffers, with_shared};
use super::target::Target;
use super::tile_kernel::TileKernel;
use super::{Output, Term};
use crate::element::Element;

/// Most rows of a task: they stream through the caches once for each strip.
const TASK_ROWS: usize = 1032;

/// Most columns of a task: packed, they fit in the L2 or L3 cache.
const TASK_COLS: usize = 768;

/// Fewest tiles along each side of a task.
const LEAST_TILES: usize = 2;

/// Tasks per thread: several, so that a delayed thread holds up the others only a little.
const TASKS_A_THREAD: usize = 6;

/// Computes `out = scale * sum of the terms (+ bias)`, or adds the terms to `out`.
///
/// # Safety
/// The extents are as in `sum_of_products`, and the machine has the instructions of `K`.
pub(super) unsafe fn run<K: TileKernel, O: Element>(
    m: usize,
    n: usize,
    out: Output<'_, O>,
    terms: &[Term<K::Operand>],
    scale: f32,
    parallel: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    let depth: usize = terms.iter().map(|term| term.depth).sum();
    let threads = if parallel { rayon::current_num_threads() } else { 1 };
    let in_place = depth_in_place::<K>(terms);
    let may_share = K::SHARES_ROWS && parallel && in_place < depth;
    let (row_parts, col_parts) = grid::<K>(m, n, depth, may_share || in_place >= depth - depth / 8, threads);
    let tasks = Tasks { m, n, row_parts, col_parts, is_parallel: threads > 1 };
    let shares_rows = may_share && col_parts > 1;
    let shares_cols = row_parts > 1;
    if !shares_cols && !shares_rows {
        tasks.for_each::<K>(&|block| {
            // SAFETY: blocks of different tasks are disjoint and inside `[m, n]`.
            with_buffers(|buffers| unsafe { run_task::<K, O>(block, out, terms, scale, buffers) });
        });
        return;
    }
    with_shared(|Buffers { rows: panels, cols: columns, partial }| {
        let sums = Sums::new::<K>(out, terms, scale, &Block { rows: 0..m, cols: 0..n }, partial);
        let parts = if threads == 1 || row_parts * col_parts == 1 { 1 } else { TASKS_A_THREAD * threads };
        for (index, (term, depth)) in pieces::<K>(terms).enumerate() {
            // SAFETY: the piece is inside the operands.
            let (a, b) = unsafe { (term.a.from(0, depth.start), term.b.from(depth.start, 0)) };
            let panels = &mut *panels;
            let columns = &mut *columns;
            let length = depth.len();
            // Both are packed concurrently, so that threads wait for the slowest of them only once.
            let (shared_rows, shared_cols) = both(
                parts > 1,
                // SAFETY: as above.
                || shares_rows.then(move || unsafe { Rows::<K>::pack(a, m, length, parts, panels) }),
                // SAFETY: as above.
                || shares_cols.then(move || unsafe { Strips::<K>::pack(b, n, length, parts, columns) }),
            );
            tasks.for_each::<K>(&|block| {
                let Block { rows, cols } = block;
                with_buffers(|own| {
                    // SAFETY: blocks of different tasks are disjoint and inside `[m, n]`, and the piece is
                    // inside the operands.
                    unsafe {
                        let rows_of_task = match &shared_rows {
                            Some(all) => all.from(rows.start),
                            None => {
                                Rows::pack(a.from(rows.start, 0), rows.len(), depth.len(), 1, &mut own.rows)
                            }
                        };
                        let cols_of_task = match &shared_cols {
                            Some(all) => all.from(cols.start),
                            None => {
                                Strips::pack(b.from(0, cols.start), cols.len(), depth.len(), 1, &mut own.cols)
                            }
                        };
                        sums.add(index, block, &Packed::new(rows_of_task, cols_of_task, depth.len()));
                    }
                });
            });
        }
    });
}

/// Rows and columns of a part of the output.
struct Block {
    rows: Range<usize>,
    cols: Range<usize>,
}

/// Tasks of a product: its rows and columns, each split into parts.
struct Tasks {
    m: usize,
    n: usize,
    row_parts: usize,
    col_parts: usize,
    is_parallel: bool,
}

impl Tasks {
    /// Calls `task` with the block of each task, on all threads if there are several.
    fn for_each<K: TileKernel>(&self, task: &(dyn Fn(&Block) + Sync)) {
        let count = self.row_parts * self.col_parts;
        if count == 1 || !self.is_parallel {
            (0..count).for_each(|index| task(&self.block::<K>(index)));
        } else {
            (0..count).into_par_iter().for_each(|index| task(&self.block::<K>(index)));
        }
    }

    /// Returns the block of task `index`.
    fn block<K: TileKernel>(&self, index: usize) -> Block {
        Block {
            rows: part(self.m, self.row_parts, index % self.row_parts, K::ROWS),
            cols: part(self.n, self.col_parts, index / self.row_parts, K::COLS),
        }
    }
}

/// Returns the results of two functions, run on two threads if `concurrent`.
fn both<A: Send, B: Send>(
    concurrent: bool,
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    if concurrent { rayon::join(a, b) } else { (a(), b()) }
}

/// Returns the part of the depth over which rows can be read in place: all but the last piece if only the end
/// of the depth is not aligned.
fn depth_in_place<K: TileKernel>(terms: &[Term<K::Operand>]) -> usize {
    let in_place = pieces::<K>(terms).filter(|(term, depth)| {
        // SAFETY: the piece is inside the operand.
        K::reads_in_place(unsafe { term.a.from(0, depth.start) }, depth.len())
    });
    in_place.map(|(_, depth)| depth.len()).sum()
}

/// Returns the number of parts into which rows and columns are split: enough for all threads, and so that as
/// little as possible is packed. Each part of the columns packs all rows again, unless they are `ready`:
/// almost all readable in place, or packed once for all tasks. Columns are packed once.
fn grid<K: TileKernel>(m: usize, n: usize, depth: usize, ready: bool, threads: usize) -> (usize, usize) {
    let least_rows = m.div_ceil(TASK_ROWS);
    let wanted = if threads == 1 {
        1
    } else {
        (TASKS_A_THREAD * threads).min(m * n * depth.max(1) / K::LEAST_TASK).max(1)
    };
    let most_rows = m.div_ceil(LEAST_TILES * K::ROWS).max(least_rows);
    let grids = (least_rows..=most_rows.min(least_rows + wanted)).map(|rows| {
        let least_cols = if rows > 1 { 1 } else { n.div_ceil(TASK_COLS) };
        let most_cols = n.div_ceil(LEAST_TILES * K::COLS).max(least_cols);
        (rows, wanted.div_ceil(rows).clamp(least_cols, most_cols))
    });
    let best = grids.min_by_key(|(rows, cols)| {
        // Having too few tasks costs more than any packing.
        let idle = wanted.saturating_sub(rows * cols);
        (idle, if ready { 0 } else { cols * m })
    });
    best.expect("there is always the least number of rows")
}

/// Returns part `index` of `0..len` split into `parts` parts of whole tiles, as even as possible.
fn part(len: usize, parts: usize, index: usize, tile: usize) -> Range<usize> {
    let tiles = len.div_ceil(tile);
    (tiles * index / parts * tile).min(len)..(tiles * (index + 1) / parts * tile).min(len)
}

/// Returns the pieces of the depth as (term, range); they depend on the depths alone. There is always at
/// least one, which may be empty.
fn pieces<K: TileKernel>(
    terms: &[Term<K::Operand>],
) -> impl Iterator<Item = (&Term<K::Operand>, Range<usize>)> {
    terms.iter().flat_map(|term| {
        let count = term.depth.div_ceil(K::DEPTH_BLOCK).max(1);
        let len = term.depth.div_ceil(count).next_multiple_of(K::DEPTH_MULTIPLE);
        (0..count).map(move |i| (term, (i * len).min(term.depth)..((i + 1) * len).min(term.depth)))
    })
}

/// # Safety
/// As [`run`], for a block inside the output that no other task accesses.
unsafe fn run_task<K: TileKernel, O: Element>(
    block: &Block,
    out: Output<'_, O>,
    terms: &[Term<K::Operand>],
    scale: f32,
    buffers: &mut Buffers,
) {
    let Buffers { rows: panels, cols: columns, partial } = buffers;
    let Block { rows, cols } = block;
    let sums = Sums::new::<K>(out, terms, scale, block, partial);
    for (index, (term, depth)) in pieces::<K>(terms).enumerate() {
        // SAFETY: the block is inside the operands' extents and inside `out`.
        unsafe {
            let a = term.a.from(rows.start, depth.start);
            let b = term.b.from(depth.start, cols.start);
            let strips = Strips::<K>::pack(b, cols.len(), depth.len(), 1, columns);
            let panels = Rows::pack(a, rows.len(), depth.len(), 1, panels);
            sums.add(index, block, &Packed::new(panels, strips, depth.len()));
        }
    }
}

/// Accumulator of the sum over the pieces of the depth: the output itself, or, if that has a half type and
/// would be rounded for each piece, a separate f32 buffer until the last piece.
struct Sums<'a, O> {
    out: Output<'a, O>,
    scale: f32,
    pieces: usize,
    /// f32 partial sums of the block; null if the output itself accumulates all pieces.
    partial: *mut f32,
    origin: (usize, usize),
    partial_stride: usize,
}

// SAFETY: tasks add to disjoint parts of the block.
unsafe impl<O: Element> Sync for Sums<'_, O> {}

impl<'a, O: Element> Sums<'a, O> {
    /// Makes the accumulator of a block of the output.
    fn new<K: TileKernel>(
        out: Output<'a, O>,
        terms: &[Term<K::Operand>],
        scale: f32,
        block: &Block,
        buffer: &'a mut Buffer,
    ) -> Self {
        let Block { rows, cols } = block;
        let pieces = pieces::<K>(terms).count();
        let keeps = O::DTYPE != DType::F32 && pieces > 1;
        let partial = if keeps {
            buffer.room::<f32>(rows.len() * cols.len()).as_mut_ptr()
        } else {
            std::ptr::null_mut()
        };
        Self { out, scale, pieces, partial, origin: (rows.start, cols.start), partial_stride: cols.len() }
    }

    /// Adds piece `index` of the depth to a part of the block.
    ///
    /// # Safety
    /// The part is inside the block, nothing else accesses it, and the operands were packed for it.
    unsafe fn add<K: TileKernel>(&self, index: usize, block: &Block, packed: &Packed<'_, K>) {
        let Block { rows, cols } = block;
        let height = rows.len();
        let width = cols.len();
        // SAFETY: the caller promises that every element is inside the block, for which `partial` was
        // allocated.
        unsafe {
            let target = |row, col| Target::new(self.out, rows.start + row, cols.start + col, self.scale);
            let from_row = rows.start - self.origin.0;
            let from_col = cols.start - self.origin.1;
            let partial =
                |row, col| self.partial.add((from_row + row) * self.partial_stride + from_col + col);
            if self.partial.is_null() {
                tiles::<K, O>(height, width, packed, |row, col| target(row, col).piece(index));
            } else if index + 1 < self.pieces {
                tiles::<K, f32>(height, width, packed, |row, col| {
                    Target::partial(partial(row, col), self.partial_stride, index > 0)
                });
            } else {
                tiles::<K, O>(height, width, packed, |row, col| {
                    target(row, col).after(partial(row, col), self.partial_stride)
                });
            }
        }
    }
}

/// Computes all tiles of a block over one piece of the depth; `target(row, column)` returns the target of the
/// tile at (row, column) of the block.
///
/// # Safety
/// The operands were packed for a block of this size, and the targets cover it.
unsafe fn tiles<K: TileKernel, O: Element>(
    rows: usize,
    cols: usize,
    packed: &Packed<'_, K>,
    target: impl Fn(usize, usize) -> Target<O>,
) {
    // SAFETY: the machine has the instructions.
    unsafe { K::begin() };
    let in_a_block = match K::ROW_BLOCK {
        Some(most) => rows.div_ceil(rows.div_ceil(most).max(1)).next_multiple_of(K::ROWS),
        None if rows >= cols => K::ROWS,
        None => rows,
    };
    for first in (0..rows).step_by(in_a_block.max(1)) {
        for col in (0..cols).step_by(K::COLS) {
            for row in (first..rows.min(first + in_a_block)).step_by(K::ROWS) {
                let height = K::ROWS.min(rows - row);
                let width = K::COLS.min(cols - col);
                let strip = packed.strip(col).as_ptr();
                // SAFETY: the tile is inside the block.
                unsafe {
                    K::tile(height, width, packed.steps(), packed.left(row), strip, target(row, col));
                };
            }
        }
    }
    // SAFETY: as above.
    unsafe { K::end() };
}
