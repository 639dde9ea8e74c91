//! Tiles of 4 x 32 in f32 for half types on any machine: operands are converted to f32 while they are packed.
//!
//! The loops are plain Rust, compiled for the vectors that the machine has; `fma.rs` is faster on machines
//! that can run it.

use std::marker::PhantomData;

use super::Matrix;
use super::target::Target;
use super::tile_kernel::{Left, TileKernel};
use crate::element::Element;
use crate::simd;
use crate::simd::kernel;

/// Kernel for operands of type `T`.
pub(super) struct Kernel<T>(PhantomData<T>);

const ROWS: usize = 4;
const COLS: usize = 32;

impl<T: Element> TileKernel for Kernel<T> {
    type Operand = T;
    type Packed = f32;
    const STEP: usize = 1;
    const DEPTH_MULTIPLE: usize = 1;
    const DEPTH_BLOCK: usize = 1024;
    const ROW_BLOCK: Option<usize> = None;
    const SHARES_ROWS: bool = false;
    const LEAST_TASK: usize = 1 << 19;
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    fn reads_in_place(_: Matrix<T>, _: usize) -> bool {
        false
    }

    unsafe fn pack_rows(a: Matrix<T>, rows: usize, depth: usize, out: *mut f32, panel_stride: usize) {
        for (number, row) in (0..rows).step_by(ROWS).enumerate() {
            // SAFETY: the caller promises the extents and the room.
            unsafe {
                pack(a.from(row, 0), ROWS.min(rows - row), depth, out.add(number * panel_stride), ROWS);
            };
        }
    }

    unsafe fn pack_cols(b: Matrix<T>, cols: usize, depth: usize, out: *mut f32, strip_stride: usize) {
        for (number, col) in (0..cols).step_by(COLS).enumerate() {
            // SAFETY: the caller promises the extents and the room.
            unsafe {
                pack(
                    b.from(0, col).transposed(),
                    COLS.min(cols - col),
                    depth,
                    out.add(number * strip_stride),
                    COLS,
                );
            };
        }
    }

    unsafe fn tile<O: Element>(
        rows: usize,
        cols: usize,
        steps: usize,
        left: Left<'_, Self>,
        strip: *const f32,
        target: Target<O>,
    ) {
        let Left::Packed(panel) = left else { unreachable!("rows are never read in place") };
        let mut sums = [[0.0f32; COLS]; ROWS];
        // SAFETY: the caller promises `steps` steps.
        multiply(panel, unsafe { std::slice::from_raw_parts(strip, steps * COLS) }, &mut sums);
        for (row, sums) in sums.iter().enumerate().take(rows) {
            // SAFETY: the caller promises that the target, and the values added to it, cover `[rows, cols]`.
            simd::run(|| unsafe { target.store_row(row, &sums[..cols]) });
        }
    }
}

kernel! {
    fn multiply(panel: &[f32], strip: &[f32], sums: &mut [[f32; COLS]; ROWS]) {
        let mut tile = *sums;
        for (row, col) in panel.as_chunks::<ROWS>().0.iter().zip(strip.as_chunks::<COLS>().0) {
            for (sums, a) in tile.iter_mut().zip(row) {
                for (sum, b) in sums.iter_mut().zip(col) {
                    *sum = a.mul_add(*b, *sum);
                }
            }
        }
        *sums = tile;
    }
}

/// Packs `lines` rows of `a` as `[depth][width]`, with zeros past the last row.
///
/// # Safety
/// `a` must cover `[lines, depth]`, `out` must have room.
unsafe fn pack<T: Element>(a: Matrix<T>, lines: usize, depth: usize, out: *mut f32, width: usize) {
    for k in 0..depth {
        for line in 0..width {
            // SAFETY: (line, k) is inside the operand, and the caller promises the room.
            unsafe {
                *out.add(k * width + line) = if line < lines {
                    (*a.data.add(line * a.row_stride + k * a.col_stride)).widen()
                } else {
                    0.0
                };
            }
        }
    }
}
