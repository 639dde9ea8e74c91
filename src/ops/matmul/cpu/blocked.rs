//! Cuts a product into tasks, tasks into tiles, and packs operands so that a tile reads them in a row.
//!
//! A task owns a block of the output: it packs its columns of `b` (and its rows of `a` where the kernel
//! cannot read them in place) into buffers of its thread, for a piece of the depth that stays in the L2
//! cache, then runs the tiles of its block. Where several tasks would pack the same columns (or rows, where
//! the kernel asks for it), these are packed before, by all threads, for all tasks. Which task computes an
//! element decides nothing: pieces of the depth are cut by the depth alone.

use std::ops::Range;

use candle_core::DType;
use rayon::iter::IntoParallelIterator;
use rayon::iter::ParallelIterator;

use super::Matrix;
use super::Output;
use super::Term;
use super::packing::Buffer;
use super::packing::Buffers;
use super::packing::Packed;
use super::packing::Rows;
use super::packing::Strips;
use super::packing::with_buffers;
use super::packing::with_shared;
use super::target::Target;
use crate::element::Element;

/// Code for one tile of the output, and the form in which it wants its operands.
pub(super) trait TileKernel {
    /// Type of the operands.
    type Operand: Element;
    /// What one lane takes at one step.
    type Packed: Copy + Send + Sync + 'static;
    /// Elements of the depth that one step takes.
    const STEP: usize;
    /// Packed depths are whole multiples of so many elements, filled up with zeros.
    const DEPTH_MULTIPLE: usize;
    /// Whether rows that cannot be read in place are packed once for all tasks, rather than by each for its
    /// own.
    const SHARES_ROWS: bool;
    /// Below this many multiplications another task costs more than it gains.
    const LEAST_TASK: usize;
    /// Most elements of the depth that are packed at once.
    const DEPTH_BLOCK: usize;
    /// Rows of a task, packed or in place, that stay in the L2 cache while all strips pass over them; where it
    /// is none, the longer side of a block is gone through once, while the shorter one stays in the caches.
    const ROW_BLOCK: Option<usize>;
    /// Most rows of a tile.
    const ROWS: usize;
    /// Most columns of a tile.
    const COLS: usize;

    /// Steps of a packed piece of this depth.
    fn steps(depth: usize) -> usize {
        depth.next_multiple_of(Self::DEPTH_MULTIPLE) / Self::STEP
    }

    /// Makes the processor ready for tiles; [`TileKernel::end`] follows.
    ///
    /// # Safety
    /// The machine has the kernel's instructions.
    unsafe fn begin() {}

    /// Ends what [`TileKernel::begin`] began.
    ///
    /// # Safety
    /// As there.
    unsafe fn end() {}

    /// Whether a tile can read the rows of `a` where they lie.
    fn reads_in_place(a: Matrix<Self::Operand>, depth: usize) -> bool;

    /// Writes `rows` rows of `a` as panels `[step][ROWS]`, `panel_stride` apart, zeros where there is no row
    /// or depth.
    ///
    /// # Safety
    /// `a` must cover `[rows, depth]`, `out` must have room for the panels.
    unsafe fn pack_rows(
        a: Matrix<Self::Operand>,
        rows: usize,
        depth: usize,
        out: *mut Self::Packed,
        panel_stride: usize,
    );

    /// Writes `cols` columns of `b` as strips `[step][COLS]`, `strip_stride` apart, zeros where there is no
    /// column or depth.
    ///
    /// # Safety
    /// `b` must cover `[depth, cols]`, `out` must have room for the strips.
    unsafe fn pack_cols(
        b: Matrix<Self::Operand>,
        cols: usize,
        depth: usize,
        out: *mut Self::Packed,
        strip_stride: usize,
    );

    /// Computes one tile of at most `ROWS x COLS` and stores it.
    ///
    /// # Safety
    /// `left` and `strip` must hold `steps` steps, `target` must cover `[rows, cols]`.
    unsafe fn tile<O: Element>(
        size: (usize, usize),
        steps: usize,
        left: Left<'_, Self>,
        strip: *const Self::Packed,
        target: Target<O>,
    ) where
        Self: Sized;
}

/// The rows of a tile.
pub(super) enum Left<'a, K: TileKernel> {
    /// A panel as `pack_rows` writes it.
    Packed(&'a [K::Packed]),
    /// Rows in place.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "the kernels for any machine pack all rows")
    )]
    InPlace(Matrix<K::Operand>),
}

/// Most rows of a task: they stream through the caches once for each strip.
const TASK_ROWS: usize = 1032;

/// Most columns of a task: packed, they lie in the L2 or L3 cache.
const TASK_COLS: usize = 768;

/// Fewest tiles on a side of a task.
const LEAST_TILES: usize = 2;

/// Tasks a thread, so that a thread which is held up delays the others little.
const TASKS_A_THREAD: usize = 6;

/// `out = scale * sum of the terms (+ bias)`, or added to what is there.
///
/// # Safety
/// The extents are as in `sum_of_products`, and the machine has the instructions of `K`.
pub(super) unsafe fn run<K: TileKernel, O: Element>(
    (m, n): (usize, usize),
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
    let (row_tasks, col_tasks) =
        grid::<K>((m, n), depth, may_share || in_place >= depth - depth / 8, threads);
    let shares_rows = may_share && col_tasks > 1;
    let block = |index: usize| {
        let (row, col) = (index % row_tasks, index / row_tasks);
        (part(m, row_tasks, row, K::ROWS), part(n, col_tasks, col, K::COLS))
    };
    let for_each = |task: &(dyn Fn(usize) + Sync)| {
        if row_tasks * col_tasks == 1 || threads == 1 {
            (0..row_tasks * col_tasks).for_each(task);
        } else {
            (0..row_tasks * col_tasks).into_par_iter().for_each(task);
        }
    };
    let shares_cols = row_tasks > 1;
    if !shares_cols && !shares_rows {
        for_each(&|index| {
            // SAFETY: blocks of different tasks are disjoint and inside `[m, n]`.
            with_buffers(|buffers| unsafe { run_task::<K, O>(block(index), out, terms, scale, buffers) });
        });
        return;
    }
    with_shared(|Buffers { rows: panels, cols: columns, partial }| {
        let sums = Sums::new::<K>(out, terms, scale, (0..m, 0..n), partial);
        let parts = if threads == 1 || row_tasks * col_tasks == 1 { 1 } else { TASKS_A_THREAD * threads };
        for (index, (term, depth)) in pieces::<K>(terms).enumerate() {
            // SAFETY: the piece lies inside the operands.
            let (a, b) = unsafe { (term.a.from(0, depth.start), term.b.from(depth.start, 0)) };
            // SAFETY: as above.
            let (panels, columns, length) = (&mut *panels, &mut *columns, depth.len());
            // Side by side: threads wait for the slowest of them once.
            let (shared_rows, shared_cols) = both(
                parts > 1,
                // SAFETY: as above.
                || shares_rows.then(move || unsafe { Rows::<K>::pack(a, (m, length), parts, panels) }),
                // SAFETY: as above.
                || shares_cols.then(move || unsafe { Strips::<K>::pack(b, (n, length), parts, columns) }),
            );
            for_each(&|task| {
                let (rows, cols) = block(task);
                with_buffers(|own| {
                    // SAFETY: blocks of different tasks are disjoint and inside `[m, n]`, the piece inside
                    // the operands.
                    unsafe {
                        let rows_of_task = match &shared_rows {
                            Some(all) => all.from(rows.start),
                            None => {
                                Rows::pack(a.from(rows.start, 0), (rows.len(), depth.len()), 1, &mut own.rows)
                            }
                        };
                        let cols_of_task = match &shared_cols {
                            Some(all) => all.from(cols.start),
                            None => Strips::pack(
                                b.from(0, cols.start),
                                (cols.len(), depth.len()),
                                1,
                                &mut own.cols,
                            ),
                        };
                        sums.add(index, (rows, cols), &Packed::new(rows_of_task, cols_of_task, depth.len()));
                    }
                });
            });
        }
    });
}

/// What two functions give, each on a thread of its own where they are `apart`.
fn both<A: Send, B: Send>(apart: bool, a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    if apart { rayon::join(a, b) } else { (a(), b()) }
}

/// Over how much of the depth rows can be read in place: all but the last piece where only the end of the
/// depth is odd.
fn depth_in_place<K: TileKernel>(terms: &[Term<K::Operand>]) -> usize {
    let in_place = |term: &Term<K::Operand>, depth: &Range<usize>| {
        // SAFETY: the piece lies inside the operand.
        K::reads_in_place(unsafe { term.a.from(0, depth.start) }, depth.len())
    };
    pieces::<K>(terms).filter(|(term, depth)| in_place(term, depth)).map(|(_, depth)| depth.len()).sum()
}

/// In how many parts rows and columns are cut: enough for all threads, and so that the least is packed. Each
/// part of the columns packs all rows unless they are `ready`: in place, but for little of the depth, or
/// packed for all; columns are packed once.
fn grid<K: TileKernel>((m, n): (usize, usize), depth: usize, ready: bool, threads: usize) -> (usize, usize) {
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
    let packed = |&(rows, cols): &(usize, usize)| {
        // Too few tasks weigh more than any packing.
        let idle = wanted.saturating_sub(rows * cols);
        (idle, if ready { 0 } else { cols * m })
    };
    grids.min_by_key(packed).expect("there is always the least number of rows")
}

/// One of `parts` parts of `0..len`, of whole tiles, as even as they can be.
fn part(len: usize, parts: usize, index: usize, tile: usize) -> Range<usize> {
    let border = |index: usize| (len.div_ceil(tile) * index / parts * tile).min(len);
    border(index)..border(index + 1)
}

/// The pieces of the depth, as (term, range): cut by the depths alone. There is always one, be it empty.
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
/// As [`run`], for a block inside the output that no other task touches.
unsafe fn run_task<K: TileKernel, O: Element>(
    (rows, cols): (Range<usize>, Range<usize>),
    out: Output<'_, O>,
    terms: &[Term<K::Operand>],
    scale: f32,
    buffers: &mut Buffers,
) {
    let Buffers { rows: panels, cols: columns, partial } = buffers;
    let sums = Sums::new::<K>(out, terms, scale, (rows.clone(), cols.clone()), partial);
    for (index, (term, depth)) in pieces::<K>(terms).enumerate() {
        // SAFETY: the block lies inside the operands' extents and inside `out`.
        unsafe {
            let (a, b) = (term.a.from(rows.start, depth.start), term.b.from(depth.start, cols.start));
            let strips = Strips::<K>::pack(b, (cols.len(), depth.len()), 1, columns);
            let panels = Rows::pack(a, (rows.len(), depth.len()), 1, panels);
            sums.add(index, (rows.clone(), cols.clone()), &Packed::new(panels, strips, depth.len()));
        }
    }
}

/// Where the sum over the pieces of the depth grows: in the output, or, where that is of a half type and
/// would round each time, in f32 beside it until the last piece.
struct Sums<'a, O> {
    out: Output<'a, O>,
    scale: f32,
    pieces: usize,
    /// In f32 for the block below; null where the output itself takes all pieces.
    partial: *mut f32,
    origin: (usize, usize),
    partial_stride: usize,
}

// SAFETY: tasks add to disjoint parts of the block.
unsafe impl<O: Element> Sync for Sums<'_, O> {}

impl<'a, O: Element> Sums<'a, O> {
    /// For a block of the output.
    fn new<K: TileKernel>(
        out: Output<'a, O>,
        terms: &[Term<K::Operand>],
        scale: f32,
        (rows, cols): (Range<usize>, Range<usize>),
        buffer: &'a mut Buffer,
    ) -> Self {
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
    /// The part lies inside the block, nothing else touches it, and the operands were packed for it.
    unsafe fn add<K: TileKernel>(
        &self,
        index: usize,
        (rows, cols): (Range<usize>, Range<usize>),
        packed: &Packed<'_, K>,
    ) {
        let size = (rows.len(), cols.len());
        // SAFETY: the caller promises that every element lies inside the block, for which `partial` was
        // sized.
        unsafe {
            let target = |row, col| Target::at(self.out, (rows.start + row, cols.start + col), self.scale);
            let (from_row, from_col) = (rows.start - self.origin.0, cols.start - self.origin.1);
            let partial =
                |row, col| self.partial.add((from_row + row) * self.partial_stride + from_col + col);
            if self.partial.is_null() {
                tiles::<K, O>(size, packed, |row, col| target(row, col).piece(index));
            } else if index + 1 < self.pieces {
                tiles::<K, f32>(size, packed, |row, col| {
                    Target::partial(partial(row, col), self.partial_stride, index > 0)
                });
            } else {
                tiles::<K, O>(size, packed, |row, col| {
                    target(row, col).after(partial(row, col), self.partial_stride)
                });
            }
        }
    }
}

/// All tiles of a block over one piece of the depth; `target` says where the one at (row, column) of the
/// block goes.
///
/// # Safety
/// The operands were packed for a block of this size, and the targets cover it.
unsafe fn tiles<K: TileKernel, O: Element>(
    (rows, cols): (usize, usize),
    packed: &Packed<'_, K>,
    target: impl Fn(usize, usize) -> Target<O>,
) {
    let tile = |row: usize, col: usize| {
        let size = (K::ROWS.min(rows - row), K::COLS.min(cols - col));
        // SAFETY: the tile lies inside the block.
        unsafe {
            K::tile(size, packed.steps(), packed.left(row), packed.strip(col).as_ptr(), target(row, col));
        };
    };
    // SAFETY: the machine has the instructions.
    unsafe { K::begin() };
    let in_a_block = match K::ROW_BLOCK {
        Some(most) => rows.div_ceil(rows.div_ceil(most).max(1)).next_multiple_of(K::ROWS),
        None if rows >= cols => K::ROWS,
        None => rows,
    };
    for first in (0..rows).step_by(in_a_block.max(1)) {
        for col in (0..cols).step_by(K::COLS) {
            (first..rows.min(first + in_a_block)).step_by(K::ROWS).for_each(|row| tile(row, col));
        }
    }
    // SAFETY: as above.
    unsafe { K::end() };
}
