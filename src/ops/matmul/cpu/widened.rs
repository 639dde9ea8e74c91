//! Tiles of 4 x 32 in f32 for half types on machines without instructions for them: operands are widened
//! while packed.
//!
//! The loops are plain, compiled for the vectors that the machine has.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::Matrix;
use super::blocked::Left;
use super::blocked::Target;
use super::blocked::TileKernel;
use crate::ops::element::Element;
use crate::ops::simd::kernel;

/// Marker of the kernel for operands of type `T`.
pub(super) struct Kernel<T>(PhantomData<T>);

const ROWS: usize = 4;
const COLS: usize = 32;

impl<T: Element> TileKernel for Kernel<T> {
    type Operand = T;
    type Packed = f32;
    const STEP: usize = 1;
    const DEPTH_MULTIPLE: usize = 1;
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
        (rows, cols): (usize, usize),
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
            // SAFETY: the caller promises that the target, and what is added to it, covers `[rows, cols]`.
            unsafe {
                let optional = |data: *const f32, offset: usize| {
                    if data.is_null() {
                        None
                    } else {
                        Some(std::slice::from_raw_parts(data.add(offset), cols))
                    }
                };
                let (partial, bias) =
                    (optional(target.partial, row * target.partial_stride), optional(target.bias, 0));
                let out = target.data.add(row * target.row_stride).cast::<MaybeUninit<O>>();
                let out = std::slice::from_raw_parts_mut(out, cols);
                store(sums, partial, bias, target.scale, target.accumulate, out);
            }
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

    fn store<O>(sums: &[f32; COLS], partial: Option<&[f32]>, bias: Option<&[f32]>, scale: f32, accumulate: bool, out: &mut [MaybeUninit<O>]) {
        for (i, out) in out.iter_mut().enumerate() {
            let start = if accumulate {
                // SAFETY: what is added to holds values, as the caller of the product promises.
                unsafe { out.assume_init_read() }.widen()
            } else {
                bias.map_or(0.0, |bias| bias[i])
            };
            out.write(O::narrow((sums[i] + partial.map_or(0.0, |partial| partial[i])).mul_add(scale, start)));
        }
    }
}

/// `lines` rows of `a` as `[depth][width]`, zeros beyond them.
///
/// # Safety
/// `a` must cover `[lines, depth]`, `out` must have room.
unsafe fn pack<T: Element>(a: Matrix<T>, lines: usize, depth: usize, out: *mut f32, width: usize) {
    for k in 0..depth {
        for line in 0..width {
            // SAFETY: (line, k) lies inside the operand, and the caller promises the room.
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
