//! Packed operands, and the buffers that store them, which a thread reuses for its next task.

use std::cell::RefCell;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use super::Matrix;
use super::tile_kernel::{Left, TileKernel};

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
    static SHARED: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
}

/// Calls `f` with this thread's buffers for a task.
pub(super) fn with_buffers(f: impl FnOnce(&mut Buffers)) {
    BUFFERS.with_borrow_mut(f);
}

/// Calls `f` with this thread's buffers for operands that all tasks of a product share. They are taken out of
/// the thread-local storage while `f` runs, because the thread that waits for the tasks may begin another
/// product meanwhile.
pub(super) fn with_shared(f: impl FnOnce(&mut Buffers)) {
    let mut buffers = SHARED.replace(Buffers::new());
    f(&mut buffers);
    SHARED.set(buffers);
}

/// Buffers for the packed operands and partial sums of a task, or of a product.
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

/// Aligned cache line of 64 bytes: packed operands are read by whole cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its place in memory is used")] [u8; 64]);

/// Reusable memory for numbers of any type.
pub(super) struct Buffer(Vec<Line>);

impl Buffer {
    /// Returns the first `len` values of the buffer, which grows if necessary.
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

/// Calls `pack` with the number and the values of each part of `len` values, on several threads if there are
/// several parts.
fn in_parts<P: Send>(
    packed: &mut [P],
    len: usize,
    parts: usize,
    pack: impl Fn(usize, &mut [P]) + Send + Sync,
) {
    if parts == 1 {
        pack(0, packed);
    } else {
        packed.par_chunks_mut(len).enumerate().for_each(|(part, packed)| pack(part, packed));
    }
}

/// Packed columns of `b` for one piece of the depth.
pub(super) struct Strips<'a, K: TileKernel> {
    packed: &'a [K::Packed],
    stride: usize,
}

impl<'a, K: TileKernel> Strips<'a, K> {
    /// Packs the columns in `parts` parts, each on a thread of its own.
    ///
    /// # Safety
    /// `b` must cover `[depth, cols]`.
    pub(super) unsafe fn pack(
        b: Matrix<K::Operand>,
        cols: usize,
        depth: usize,
        parts: usize,
        buffer: &'a mut Buffer,
    ) -> Self {
        // One extra step keeps the stride from being a power of two, which would map all strips to the same
        // few sets of the cache.
        let stride = (K::steps(depth) + 1) * K::COLS;
        let count = cols.div_ceil(K::COLS);
        let packed = buffer.room::<K::Packed>(count * stride);
        let strips = count.div_ceil(parts).max(1);
        in_parts(packed, strips * stride, parts, |part, packed| {
            let first = part * strips * K::COLS;
            // SAFETY: the columns from `first` on exist, and the part of the buffer has room for their
            // strips.
            unsafe {
                K::pack_cols(
                    b.from(0, first),
                    (cols - first).min(strips * K::COLS),
                    depth,
                    packed.as_mut_ptr(),
                    stride,
                );
            };
        });
        Self { packed, stride }
    }

    /// Returns the strips from column `col` on, which must be the first column of a strip.
    pub(super) fn from(&self, col: usize) -> Self {
        Self { packed: &self.packed[col / K::COLS * self.stride..], stride: self.stride }
    }
}

/// Rows of `a` for one piece of the depth: packed, or read in place.
pub(super) enum Rows<'a, K: TileKernel> {
    /// Panels, and the distance between them.
    Panels(&'a [K::Packed], usize),
    /// Rows read in place.
    InPlace(Matrix<K::Operand>),
}

impl<'a, K: TileKernel> Rows<'a, K> {
    /// Packs the rows in `parts` parts, each on a thread of its own, unless they can be read in place.
    ///
    /// # Safety
    /// `a` must cover `[rows, depth]` for as long as the result lives.
    pub(super) unsafe fn pack(
        a: Matrix<K::Operand>,
        rows: usize,
        depth: usize,
        parts: usize,
        buffer: &'a mut Buffer,
    ) -> Self {
        if K::reads_in_place(a, depth) {
            return Self::InPlace(a);
        }
        // As for strips, the extra steps keep the stride from being a power of two.
        let stride = (K::steps(depth) + 2) * K::ROWS;
        let count = rows.div_ceil(K::ROWS);
        let packed = buffer.room::<K::Packed>(count * stride);
        let panels = count.div_ceil(parts).max(1);
        in_parts(packed, panels * stride, parts, |part, packed| {
            let first = part * panels * K::ROWS;
            // SAFETY: the rows from `first` on exist, and the part of the buffer has room for their panels.
            unsafe {
                K::pack_rows(
                    a.from(first, 0),
                    (rows - first).min(panels * K::ROWS),
                    depth,
                    packed.as_mut_ptr(),
                    stride,
                );
            };
        });
        Self::Panels(packed, stride)
    }

    /// Returns the rows from `row` on, which must be the first row of a panel.
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

/// Packed operands of a task for one piece of the depth.
pub(super) struct Packed<'a, K: TileKernel> {
    rows: Rows<'a, K>,
    strips: Strips<'a, K>,
    steps: usize,
}

impl<'a, K: TileKernel> Packed<'a, K> {
    /// Combines the rows and columns of a piece of this depth.
    pub(super) fn new(rows: Rows<'a, K>, strips: Strips<'a, K>, depth: usize) -> Self {
        Self { rows, strips, steps: K::steps(depth) }
    }

    /// Returns the number of steps in the depth.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the columns of the tile that begins at column `col` of the task.
    pub(super) fn strip(&self, col: usize) -> &[K::Packed] {
        &self.strips.packed[col / K::COLS * self.strips.stride..][..self.steps * K::COLS]
    }

    /// Returns the rows of the tile that begins at row `row` of the task.
    pub(super) fn left(&self, row: usize) -> Left<'a, K> {
        match self.rows {
            Rows::Panels(panels, stride) => {
                Left::Packed(&panels[row / K::ROWS * stride..][..self.steps * K::ROWS])
            }
            // SAFETY: the row is inside the operand, as the caller of `Rows::pack` promised.
            Rows::InPlace(a) => Left::InPlace(unsafe { a.from(row, 0) }),
        }
    }
}
