//! Cuts a product into tasks, tasks into tiles, and packs operands so that a tile reads them in a row.
//!
//! A task owns a block of the output and shares nothing: it packs its columns of `b` (and its rows of `a` where the kernel
//! cannot read them in place) into buffers of its thread, for a piece of the depth that stays in the L2 cache, then runs
//! the tiles of its block. Which task computes an element decides nothing: pieces of the depth are cut by the depth alone.

use std::cell::RefCell;
use std::ops::Range;

use candle_core::DType;
use rayon::iter::IntoParallelIterator;
use rayon::iter::ParallelIterator;

use super::Matrix;
use super::Output;
use super::Term;
use crate::ops::element::Element;

/// Code for one tile of the output, and the form in which it wants its operands.
pub(super) trait TileKernel {
    /// Type of the operands.
    type Operand: Element;
    /// What one lane takes at one step.
    type Packed: Copy + Default + 'static;
    /// Elements of the depth that one step takes.
    const STEP: usize;
    /// Most rows of a tile.
    const ROWS: usize;
    /// Most columns of a tile.
    const COLS: usize;

    /// Whether a tile can read the rows of `a` where they lie.
    fn reads_in_place(a: Matrix<Self::Operand>, depth: usize) -> bool;

    /// Writes `rows` rows of `a` as panels `[step][ROWS]`, `panel_stride` apart, zeros where there is no row or depth.
    ///
    /// # Safety
    /// `a` must cover `[rows, depth]`, `out` must have room for the panels.
    unsafe fn pack_rows(a: Matrix<Self::Operand>, rows: usize, depth: usize, out: *mut Self::Packed, panel_stride: usize);

    /// Writes `cols` columns of `b` as strips `[step][COLS]`, `strip_stride` apart, zeros where there is no column or depth.
    ///
    /// # Safety
    /// `b` must cover `[depth, cols]`, `out` must have room for the strips.
    unsafe fn pack_cols(b: Matrix<Self::Operand>, cols: usize, depth: usize, out: *mut Self::Packed, strip_stride: usize);

    /// Computes one tile of at most `ROWS x COLS` and stores it.
    ///
    /// # Safety
    /// `left` and `strip` must hold `steps` steps, `target` must cover `[rows, cols]`.
    unsafe fn tile<O: Element>(size: (usize, usize), steps: usize, left: Left<'_, Self>, strip: *const Self::Packed, target: Target<O>)
    where
        Self: Sized;
}

/// The rows of a tile.
pub(super) enum Left<'a, K: TileKernel> {
    /// A panel as `pack_rows` writes it.
    Packed(&'a [K::Packed]),
    /// Rows in place.
    InPlace(Matrix<K::Operand>),
}

/// Where a tile goes: `(sum + partial) * scale + bias`, or that added to what is there.
pub(super) struct Target<O> {
    /// First element.
    pub(super) data: *mut O,
    /// Distance between rows in elements.
    pub(super) row_stride: usize,
    /// Whether to add to what is there.
    pub(super) accumulate: bool,
    /// Factor of the sum.
    pub(super) scale: f32,
    /// Added to each row; may be null.
    pub(super) bias: *const f32,
    /// The sum of the depth before, may be null.
    pub(super) partial: *const f32,
    /// Distance between rows of `partial`.
    pub(super) partial_stride: usize,
}

/// Most elements of the depth that are packed at once: a strip of columns then fills 64 KiB, a panel of rows 24.
const DEPTH_BLOCK: usize = 1024;

/// Most rows of a task: they stream through the caches once for each strip.
const TASK_ROWS: usize = 1032;

/// Most columns of a task: packed, they lie in the L2 or L3 cache.
const TASK_COLS: usize = 768;

/// Below this many multiplications another task costs more than it gains.
const LEAST_TASK: usize = 1 << 19;

/// Fewest tiles on a side of a task.
const LEAST_TILES: usize = 2;

/// Tasks a thread, so that a thread which is held up delays the others little.
const TASKS_A_THREAD: usize = 3;

thread_local! {
    /// Packed operands and partial sums of this thread, kept for the next task.
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers { rows: Vec::new(), cols: Vec::new(), partial: Vec::new() }) };
}

/// 64 bytes on a border of 64: packed operands are read by whole cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its place in memory is used")] [u8; 64]);

struct Buffers {
    rows: Vec<Line>,
    cols: Vec<Line>,
    partial: Vec<Line>,
}

/// The first `len` values of a buffer, which grows when it must.
fn room<P: Copy>(buffer: &mut Vec<Line>, len: usize) -> &mut [P] {
    let lines = (len * size_of::<P>()).div_ceil(size_of::<Line>());
    if buffer.len() < lines {
        buffer.resize(lines, Line([0; 64]));
    }
    // SAFETY: the lines hold `len` values of a plain number type, are initialised, aligned for it, and borrowed mutably.
    unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), len) }
}

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
    let in_place = terms.iter().all(|term| K::reads_in_place(term.a, term.depth));
    let (row_tasks, col_tasks) = grid::<K>((m, n), depth, in_place, threads);
    let (task_rows, task_cols) = (share(m, row_tasks, K::ROWS), share(n, col_tasks, K::COLS));
    // The shares are rounded up to whole tiles, so the last parts may be empty.
    let (row_tasks, col_tasks) = (m.div_ceil(task_rows), n.div_ceil(task_cols));
    let task = |index: usize| {
        let (row, col) = (index % row_tasks * task_rows, index / row_tasks * task_cols);
        let block = (row..m.min(row + task_rows), col..n.min(col + task_cols));
        // SAFETY: blocks of different tasks are disjoint and inside `[m, n]`.
        BUFFERS.with_borrow_mut(|buffers| unsafe { run_task::<K, O>(block, out, terms, scale, buffers) });
    };
    if row_tasks * col_tasks == 1 || threads == 1 {
        (0..row_tasks * col_tasks).for_each(task);
    } else {
        (0..row_tasks * col_tasks).into_par_iter().for_each(task);
    }
}

/// In how many parts rows and columns are cut: enough for all threads, and so that the least is packed. Each part of the
/// rows packs all columns, each part of the columns all rows that cannot be read in place.
fn grid<K: TileKernel>((m, n): (usize, usize), depth: usize, in_place: bool, threads: usize) -> (usize, usize) {
    let (least_rows, least_cols) = (m.div_ceil(TASK_ROWS), n.div_ceil(TASK_COLS));
    if threads == 1 {
        return (least_rows, least_cols);
    }
    let wanted = (TASKS_A_THREAD * threads).min(m * n * depth.max(1) / LEAST_TASK).max(1);
    let most_rows = m.div_ceil(LEAST_TILES * K::ROWS).max(least_rows);
    let most_cols = n.div_ceil(LEAST_TILES * K::COLS).max(least_cols);
    let grids = (least_rows..=most_rows.min(least_rows + wanted)).map(|rows| (rows, wanted.div_ceil(rows).clamp(least_cols, most_cols)));
    let packed = |&(rows, cols): &(usize, usize)| {
        // Too few tasks weigh more than any packing.
        let idle = wanted.saturating_sub(rows * cols);
        (idle, rows * n + if in_place { 0 } else { cols * m })
    };
    grids.min_by_key(packed).expect("there is always the least number of rows")
}

/// The size of each of `parts` parts of `len`, in whole multiples of `tile`.
fn share(len: usize, parts: usize, tile: usize) -> usize {
    len.div_ceil(parts).next_multiple_of(tile)
}

/// The pieces of the depth, as (term, range): cut by the depths alone. There is always one, be it empty.
fn pieces<T: Element>(terms: &[Term<T>]) -> impl Iterator<Item = (&Term<T>, Range<usize>)> {
    terms.iter().flat_map(|term| {
        let count = term.depth.div_ceil(DEPTH_BLOCK).max(1);
        let len = term.depth.div_ceil(count).next_multiple_of(2);
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
    let last = pieces(terms).count() - 1;
    // A half type cannot hold a partial sum.
    let keeps_partial = last > 0 && O::DTYPE != DType::F32;
    let sums: *mut f32 = room(&mut buffers.partial, if keeps_partial { rows.len() * cols.len() } else { 0 }).as_mut_ptr();
    for (index, (term, depth)) in pieces(terms).enumerate() {
        let steps = depth.len().div_ceil(K::STEP);
        // SAFETY: the block lies inside the operands' extents.
        let (a, b) = unsafe { (term.a.from(rows.start, depth.start), term.b.from(depth.start, cols.start)) };
        // SAFETY: as above.
        let packed = unsafe { Packed::<K>::of(a, b, (rows.len(), cols.len(), depth.len()), &mut buffers.rows, &mut buffers.cols) };
        for (col, strip) in (0..cols.len()).step_by(K::COLS).zip(packed.strips.chunks_exact(packed.strip_stride)) {
            for row in (0..rows.len()).step_by(K::ROWS) {
                let size = (K::ROWS.min(rows.len() - row), K::COLS.min(cols.len() - col));
                let (left, strip) = (packed.left(row, steps), strip.as_ptr());
                // SAFETY: the tile lies inside the block, and that inside `out`; the sums were sized for the block.
                unsafe {
                    let sum = sums.add(if keeps_partial { row * cols.len() + col } else { 0 });
                    if keeps_partial && index < last {
                        K::tile(size, steps, left, strip, Target::partial(sum, cols.len(), index > 0));
                    } else {
                        let target = Target::at(out, (rows.start + row, cols.start + col), scale);
                        let target = if keeps_partial { target.after(sum, cols.len()) } else { target.piece(index) };
                        K::tile(size, steps, left, strip, target);
                    }
                }
            }
        }
    }
}

impl<O: Element> Target<O> {
    /// The sum over some pieces of the depth, in f32.
    fn partial(data: *mut O, row_stride: usize, accumulate: bool) -> Self {
        let (bias, partial) = (std::ptr::null(), std::ptr::null());
        Self { data, row_stride, accumulate, scale: 1.0, bias, partial, partial_stride: 0 }
    }

    /// The result from (row, col) on.
    ///
    /// # Safety
    /// The element must lie inside `out`.
    unsafe fn at(out: Output<'_, O>, (row, col): (usize, usize), scale: f32) -> Self {
        Self {
            // SAFETY: the caller promises that the element exists.
            data: unsafe { out.data.add(row * out.row_stride + col) },
            row_stride: out.row_stride,
            accumulate: out.accumulate,
            scale,
            bias: out.bias.map_or(std::ptr::null(), |bias| bias[col..].as_ptr()),
            partial: std::ptr::null(),
            partial_stride: 0,
        }
    }

    /// The result when the pieces before this one were summed elsewhere.
    fn after(self, partial: *const f32, partial_stride: usize) -> Self {
        Self { partial, partial_stride, ..self }
    }

    /// The result when the pieces before this one are in it already.
    fn piece(self, index: usize) -> Self {
        if index == 0 { self } else { Self { accumulate: true, bias: std::ptr::null(), ..self } }
    }
}

/// The operands of a task for one piece of the depth, as tiles want them.
struct Packed<'a, K: TileKernel> {
    rows: Rows<'a, K>,
    strips: &'a [K::Packed],
    strip_stride: usize,
}

enum Rows<'a, K: TileKernel> {
    Panels(&'a [K::Packed], usize),
    InPlace(Matrix<K::Operand>),
}

impl<'a, K: TileKernel> Packed<'a, K> {
    /// Packs the columns of `b`, and the rows of `a` unless they can be read in place.
    ///
    /// # Safety
    /// `a` must cover `[rows, depth]`, `b` `[depth, cols]`, for as long as the result lives.
    unsafe fn of(
        a: Matrix<K::Operand>,
        b: Matrix<K::Operand>,
        (rows, cols, depth): (usize, usize, usize),
        row_buffer: &'a mut Vec<Line>,
        col_buffer: &'a mut Vec<Line>,
    ) -> Self {
        let steps = depth.div_ceil(K::STEP);
        // Strips or panels a power of two apart would all fall into the same few sets of the cache.
        let (strip_stride, panel_stride) = ((steps + 1) * K::COLS, (steps + 2) * K::ROWS);
        let strips = room::<K::Packed>(col_buffer, cols.div_ceil(K::COLS) * strip_stride);
        // SAFETY: the buffer was sized for the strips.
        unsafe { K::pack_cols(b, cols, depth, strips.as_mut_ptr(), strip_stride) };
        if K::reads_in_place(a, depth) {
            return Self { rows: Rows::InPlace(a), strips, strip_stride };
        }
        let panels = room::<K::Packed>(row_buffer, rows.div_ceil(K::ROWS) * panel_stride);
        // SAFETY: the buffer was sized for the panels.
        unsafe { K::pack_rows(a, rows, depth, panels.as_mut_ptr(), panel_stride) };
        Self { rows: Rows::Panels(panels, panel_stride), strips, strip_stride }
    }

    /// The rows of the tile that begins at `row`, a row of the task.
    fn left(&self, row: usize, steps: usize) -> Left<'a, K> {
        match self.rows {
            Rows::Panels(panels, stride) => Left::Packed(&panels[row / K::ROWS * stride..][..steps * K::ROWS]),
            // SAFETY: the row lies inside the operand, as `of` was promised.
            Rows::InPlace(a) => Left::InPlace(unsafe { a.from(row, 0) }),
        }
    }
}
