//! The kernel of one tile of a product: its sizes, how it packs its operands, and the tile itself.

use super::Matrix;
use super::target::Target;
use crate::element::Element;

/// Kernel that computes one tile of the output, and the form in which it reads its operands.
pub(super) trait TileKernel {
    /// Type of the operands.
    type Operand: Element;
    /// Packed values that one lane reads in one step.
    type Packed: Copy + Send + Sync + 'static;
    /// Elements of the depth that one step processes.
    const STEP: usize;
    /// Packed depths are padded with zeros to a multiple of this number of elements.
    const DEPTH_MULTIPLE: usize;
    /// True if rows that cannot be read in place are packed once for all tasks, rather than by each task for
    /// itself.
    const SHARES_ROWS: bool;
    /// Fewest multiplications of a task; below this, another task costs more than it gains.
    const LEAST_TASK: usize;
    /// Most elements of the depth that are packed at once.
    const DEPTH_BLOCK: usize;
    /// Rows of a task, packed or in place, that stay in the L2 cache while all strips pass over them. If
    /// `None`, the longer side of a block is passed over once, while the shorter one stays in the caches.
    const ROW_BLOCK: Option<usize>;
    /// Most rows of a tile.
    const ROWS: usize;
    /// Most columns of a tile.
    const COLS: usize;

    /// Number of steps of a packed piece of this depth.
    fn steps(depth: usize) -> usize {
        depth.next_multiple_of(Self::DEPTH_MULTIPLE) / Self::STEP
    }

    /// Prepares the processor for tiles; [`TileKernel::end`] must follow.
    ///
    /// # Safety
    /// The machine has the kernel's instructions.
    unsafe fn begin() {}

    /// Undoes [`TileKernel::begin`].
    ///
    /// # Safety
    /// As [`TileKernel::begin`].
    unsafe fn end() {}

    /// Returns true if a tile can read the rows of `a` in place, without packing.
    fn reads_in_place(a: Matrix<Self::Operand>, depth: usize) -> bool;

    /// Packs `rows` rows of `a` as panels `[step][ROWS]`, `panel_stride` apart, with zeros past the last row
    /// and the end of the depth.
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

    /// Packs `cols` columns of `b` as strips `[step][COLS]`, `strip_stride` apart, with zeros past the last
    /// column and the end of the depth.
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

    /// Computes one tile of `rows x cols`, at most `ROWS x COLS`, and stores it.
    ///
    /// # Safety
    /// `left` and `strip` must hold `steps` steps, `target` must cover `[rows, cols]`.
    unsafe fn tile<O: Element>(
        rows: usize,
        cols: usize,
        steps: usize,
        left: Left<'_, Self>,
        strip: *const Self::Packed,
        target: Target<O>,
    ) where
        Self: Sized;
}

/// Rows of the left operand that a tile reads.
pub(super) enum Left<'a, K: TileKernel> {
    /// Panel packed by `pack_rows`.
    Packed(&'a [K::Packed]),
    /// Rows read in place.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "the kernels for any machine pack all rows")
    )]
    InPlace(Matrix<K::Operand>),
}
