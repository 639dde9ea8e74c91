//! Packed operands and the memory they lie in: buffers of a thread that the next task uses again.

use std::cell::RefCell;

use rayon::iter::IndexedParallelIterator;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;

use super::Matrix;
use super::blocked::Left;
use super::blocked::TileKernel;

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
    static SHARED: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
}

/// Calls `f` with the buffers of this thread.
pub(super) fn with_buffers(f: impl FnOnce(&mut Buffers)) {
    BUFFERS.with_borrow_mut(f);
}

/// Calls `f` with this thread's buffers for what all tasks of a product share. They are taken away while `f`
/// runs: the thread that waits for the tasks may begin another product meanwhile.
pub(super) fn with_shared(f: impl FnOnce(&mut Buffers)) {
    let mut buffers = SHARED.replace(Buffers::new());
    f(&mut buffers);
    SHARED.set(buffers);
}

/// Packed operands and partial sums of one task, or of a product.
pub(super) struct Buffers {
    pub(super) rows: Buffer,
    pub(super) cols: Buffer,
    pub(super) partial: Buffer,
}

impl Buffers {
    const fn new() -> Self {
        Self { rows: Buffer(Vec::new()), cols: Buffer(Vec::new()), partial: Buffer(Vec::new()) }
    }
}

/// 64 bytes on a border of 64: packed operands are read by whole cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its place in memory is used")] [u8; 64]);

/// Memory for numbers of any type.
pub(super) struct Buffer(Vec<Line>);

impl Buffer {
    /// The first `len` values of the buffer, which grows when it must.
    pub(super) fn room<P: Copy>(&mut self, len: usize) -> &mut [P] {
        let lines = (len * size_of::<P>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; 64]));
        }
        // SAFETY: the lines hold `len` values of a plain number type, are initialised, aligned for it, and
        // borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Calls `pack` with each part of `len` values and its number, on a thread of its own where there are
/// several.
fn in_parts<P: Send>(
    packed: &mut [P],
    len: usize,
    parts: usize,
    pack: impl Fn((usize, &mut [P])) + Send + Sync,
) {
    if parts == 1 {
        pack((0, packed));
    } else {
        packed.par_chunks_mut(len).enumerate().for_each(pack);
    }
}

/// The columns of `b` for one piece of the depth, as tiles want them.
pub(super) struct Strips<'a, K: TileKernel> {
    packed: &'a [K::Packed],
    stride: usize,
}

impl<'a, K: TileKernel> Strips<'a, K> {
    /// Packs the columns, those of each of `parts` parts on a thread of their own.
    ///
    /// # Safety
    /// `b` must cover `[depth, cols]`.
    pub(super) unsafe fn pack(
        b: Matrix<K::Operand>,
        (cols, depth): (usize, usize),
        parts: usize,
        buffer: &'a mut Buffer,
    ) -> Self {
        // Strips a power of two apart would all fall into the same few sets of the cache.
        let stride = (K::steps(depth) + 1) * K::COLS;
        let count = cols.div_ceil(K::COLS);
        let packed = buffer.room::<K::Packed>(count * stride);
        let strips = count.div_ceil(parts).max(1);
        let pack = |(part, packed): (usize, &mut [K::Packed])| {
            let first = part * strips * K::COLS;
            // SAFETY: the columns from `first` on exist, and the part of the buffer holds the strips of so
            // many.
            unsafe {
                K::pack_cols(
                    b.from(0, first),
                    (cols - first).min(strips * K::COLS),
                    depth,
                    packed.as_mut_ptr(),
                    stride,
                );
            };
        };
        in_parts(packed, strips * stride, parts, pack);
        Self { packed, stride }
    }

    /// The strips from column `col` on, the first one of a strip.
    pub(super) fn from(&self, col: usize) -> Self {
        Self { packed: &self.packed[col / K::COLS * self.stride..], stride: self.stride }
    }
}

/// The rows of `a` for one piece of the depth, as tiles want them: packed, or as they are.
pub(super) enum Rows<'a, K: TileKernel> {
    /// Panels, and the distance between them.
    Panels(&'a [K::Packed], usize),
    /// In place.
    InPlace(Matrix<K::Operand>),
}

impl<'a, K: TileKernel> Rows<'a, K> {
    /// Packs the rows, those of each of `parts` parts on a thread of their own, unless they can be read in
    /// place.
    ///
    /// # Safety
    /// `a` must cover `[rows, depth]` for as long as the result lives.
    pub(super) unsafe fn pack(
        a: Matrix<K::Operand>,
        (rows, depth): (usize, usize),
        parts: usize,
        buffer: &'a mut Buffer,
    ) -> Self {
        if K::reads_in_place(a, depth) {
            return Self::InPlace(a);
        }
        // Not a power of two apart, as strips.
        let stride = (K::steps(depth) + 2) * K::ROWS;
        let count = rows.div_ceil(K::ROWS);
        let packed = buffer.room::<K::Packed>(count * stride);
        let panels = count.div_ceil(parts).max(1);
        let pack = |(part, packed): (usize, &mut [K::Packed])| {
            let first = part * panels * K::ROWS;
            // SAFETY: the rows from `first` on exist, and the part of the buffer holds the panels of so many.
            unsafe {
                K::pack_rows(
                    a.from(first, 0),
                    (rows - first).min(panels * K::ROWS),
                    depth,
                    packed.as_mut_ptr(),
                    stride,
                );
            };
        };
        in_parts(packed, panels * stride, parts, pack);
        Self::Panels(packed, stride)
    }

    /// The rows from `row` on, the first one of a panel.
    ///
    /// # Safety
    /// The row must exist.
    pub(super) unsafe fn from(&self, row: usize) -> Self {
        match *self {
            Self::Panels(packed, stride) => Self::Panels(&packed[row / K::ROWS * stride..], stride),
            // SAFETY: the caller promises that the row exists.
            Self::InPlace(a) => Self::InPlace(unsafe { a.from(row, 0) }),
        }
    }
}

/// The operands of a task for one piece of the depth, as tiles want them.
pub(super) struct Packed<'a, K: TileKernel> {
    rows: Rows<'a, K>,
    strips: Strips<'a, K>,
    steps: usize,
}

impl<'a, K: TileKernel> Packed<'a, K> {
    /// Rows and columns of a piece of this depth.
    pub(super) fn new(rows: Rows<'a, K>, strips: Strips<'a, K>, depth: usize) -> Self {
        Self { rows, strips, steps: K::steps(depth) }
    }

    /// How many steps the depth is.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// The columns of the tile that begins at `col`, a column of the task.
    pub(super) fn strip(&self, col: usize) -> &[K::Packed] {
        &self.strips.packed[col / K::COLS * self.strips.stride..][..self.steps * K::COLS]
    }

    /// The rows of the tile that begins at `row`, a row of the task.
    pub(super) fn left(&self, row: usize) -> Left<'a, K> {
        match self.rows {
            Rows::Panels(panels, stride) => {
                Left::Packed(&panels[row / K::ROWS * stride..][..self.steps * K::ROWS])
            }
            // SAFETY: the row lies inside the operand, as `Rows::pack` was promised.
            Rows::InPlace(a) => Left::InPlace(unsafe { a.from(row, 0) }),
        }
    }
}
