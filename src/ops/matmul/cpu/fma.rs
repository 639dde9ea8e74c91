//! f32 tiles by fused multiply-adds, for every type of operand: 6 x 16 by AVX2, 6 x 64 by AVX-512.
//!
//! A step of a tile is one multiply-add for each of its vectors, one load for each vector of columns and one
//! broadcast for each row, so the multipliers are the bottleneck. Rows and columns are packed, and half types
//! are converted to f32 meanwhile. Each element is one chain of multiply-adds over a piece of the depth,
//! whatever the vector width: the bits do not depend on the instructions.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use candle_core::DType;

use super::Matrix;
use super::lanes::{Lanes, enter};
use super::target::Target;
use super::tile_kernel::{Left, TileKernel};
use crate::element::Element;

/// Kernel for operands of type `T` in vectors of `S`.
pub(super) struct Kernel<S, T>(PhantomData<(S, T)>);

/// Rows of a tile: its sums, the vectors of columns and a broadcast fill the registers.
const ROWS: usize = 6;

/// Most values of a line that are converted to f32 at once.
const WIDENED: usize = 64;

impl<S: Lanes, T: Element> TileKernel for Kernel<S, T> {
    type Operand = T;
    type Packed = f32;
    const STEP: usize = 1;
    const DEPTH_MULTIPLE: usize = 1;
    // A strip of columns fits in the L1 cache (with AVX-512 in L2), a block of rows in the L2 cache.
    const DEPTH_BLOCK: usize = 384;
    const ROW_BLOCK: Option<usize> = Some(72);
    const SHARES_ROWS: bool = true;
    const LEAST_TASK: usize = 1 << 19;
    const ROWS: usize = ROWS;
    const COLS: usize = S::VECTORS * S::F32_LANES;

    fn reads_in_place(_: Matrix<T>, _: usize) -> bool {
        // Rows that are a multiple of 4 KiB apart would all map to the same set of the cache.
        false
    }

    unsafe fn pack_rows(a: Matrix<T>, rows: usize, depth: usize, out: *mut f32, panel_stride: usize) {
        // SAFETY: the caller promises the extents, the room and the instructions.
        unsafe { pack::<S, T, ROWS>(a, rows, depth, out, panel_stride) };
    }

    unsafe fn pack_cols(b: Matrix<T>, cols: usize, depth: usize, out: *mut f32, strip_stride: usize) {
        // SAFETY: the caller promises the extents, the room and the instructions.
        unsafe {
            match Self::COLS {
                16 => pack::<S, T, 16>(b.transposed(), cols, depth, out, strip_stride),
                64 => pack::<S, T, 64>(b.transposed(), cols, depth, out, strip_stride),
                _ => unreachable!("strips have 16 or 64 columns"),
            }
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
        let panel = panel.as_ptr();
        let target = &target;
        // SAFETY: the caller promises the extents and the instructions.
        unsafe {
            match S::VECTORS {
                2 => enter::<S>(|simd| tile::<S, O, 2>(simd, rows, cols, steps, panel, strip, target)),
                4 => enter::<S>(|simd| tile::<S, O, 4>(simd, rows, cols, steps, panel, strip, target)),
                _ => unreachable!("a tile has 2 or 4 vectors"),
            }
        }
    }
}

/// Computes a tile with rows of `N` vectors, of which `rows` rows and `cols` columns are stored.
///
/// # Safety
/// `panel` and `strip` must hold `steps` steps, `target` must cover `[rows, cols]`.
#[inline(always)]
unsafe fn tile<S: Lanes, O: Element, const N: usize>(
    simd: S,
    rows: usize,
    cols: usize,
    steps: usize,
    panel: *const f32,
    strip: *const f32,
    target: &Target<O>,
) {
    if target.accumulate {
        target.prefetch(rows, cols);
    }
    let mut sums = [[simd.splat_f32s(0.0); N]; ROWS];
    let mut panel = panel;
    let mut strip = strip;
    for _ in 0..steps {
        // SAFETY: strip and panel hold `steps` steps.
        unsafe {
            let mut columns = [simd.splat_f32s(0.0); N];
            for (j, column) in columns.iter_mut().enumerate() {
                *column = strip.add(j * S::F32_LANES).cast::<S::f32s>().read_unaligned();
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let row = simd.splat_f32s(*panel.add(i));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = simd.mul_add_f32s(row, column, *sum);
                }
            }
            panel = panel.add(ROWS);
            strip = strip.add(N * S::F32_LANES);
        }
    }
    // The sums go through memory: a loop over registers would have to be unrolled together with all cases of
    // storing.
    let mut finished = [[MaybeUninit::<S::f32s>::uninit(); N]; ROWS];
    for (finished, sums) in finished.iter_mut().zip(sums) {
        for (finished, sum) in finished.iter_mut().zip(sums) {
            finished.write(sum);
        }
    }
    for (row, sums) in finished.iter().enumerate().take(rows) {
        // SAFETY: the sums were written above, as many values as their vectors have; the row is inside the
        // target.
        unsafe {
            if O::DTYPE == DType::F32 && cols == N * S::F32_LANES {
                store_vectors(simd, sums, row, target);
            } else {
                target.store_row(row, std::slice::from_raw_parts(sums.as_ptr().cast::<f32>(), cols));
            }
        }
    }
}

/// Stores a whole row of an f32 tile, as [`Target::store_row`].
///
/// # Safety
/// The sums were written, the row is inside the target, and `O` is f32.
#[inline(always)]
unsafe fn store_vectors<S: Lanes, O: Element, const N: usize>(
    simd: S,
    sums: &[MaybeUninit<S::f32s>; N],
    row: usize,
    target: &Target<O>,
) {
    let scale = simd.splat_f32s(target.scale);
    for (j, sum) in sums.iter().enumerate() {
        // SAFETY: the caller promises the row; a bias has the same length.
        unsafe {
            let at = target.data.add(row * target.row_stride + j * S::F32_LANES).cast::<S::f32s>();
            let start = if target.accumulate {
                at.read_unaligned()
            } else if target.bias.is_null() {
                simd.splat_f32s(0.0)
            } else {
                target.bias.add(j * S::F32_LANES).cast::<S::f32s>().read_unaligned()
            };
            at.write_unaligned(simd.mul_add_f32s(sum.assume_init(), scale, start));
        }
    }
}

/// Packs the rows of `a` ("lines") as groups `[depth][W]`, `group_stride` apart, with zeros past the last
/// line.
///
/// # Safety
/// `a` must cover `[lines, depth]`, `out` must have room for the groups and for a vector between them, and
/// the machine has the instructions.
unsafe fn pack<S: Lanes, T: Element, const W: usize>(
    a: Matrix<T>,
    lines: usize,
    depth: usize,
    out: *mut f32,
    group_stride: usize,
) {
    if a.row_stride == 1 {
        // SAFETY: the caller's promises.
        return unsafe { enter::<S>(|_| copy::<T, W>(a, lines, depth, out, group_stride)) };
    }
    for (number, first) in (0..lines).step_by(W).enumerate() {
        // SAFETY: the caller promises the lines and the room.
        unsafe {
            let a = a.from(first, 0);
            let out = out.add(number * group_stride);
            let there = lines - first;
            let mut line = 0;
            // A vector of lines may extend past the group: the values written there are overwritten by the
            // next depth, or are in the gap between the groups.
            while a.col_stride == 1 && line < W && line + S::F32_LANES <= there {
                transpose::<S, T>(a.from(line, 0), depth, out.add(line), W);
                line += S::F32_LANES;
            }
            for line in line..W {
                for k in 0..depth {
                    *out.add(k * W + line) = if line < there {
                        (*a.data.add(line * a.row_stride + k * a.col_stride)).widen()
                    } else {
                        0.0
                    };
                }
            }
        }
    }
}

/// Packs as [`pack`] does, for lines that are contiguous in memory.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn copy<T: Element, const W: usize>(
    a: Matrix<T>,
    lines: usize,
    depth: usize,
    out: *mut f32,
    group_stride: usize,
) {
    for k in 0..depth {
        // SAFETY: the caller promises `lines` values at each depth, and the room.
        unsafe {
            let from = std::slice::from_raw_parts(a.data.add(k * a.col_stride), lines);
            let (whole, rest) = from.as_chunks::<W>();
            for (number, values) in whole.iter().enumerate() {
                let to = out.add(number * group_stride + k * W).cast::<[f32; W]>();
                to.write_unaligned(values.map(Element::widen));
            }
            if !rest.is_empty() {
                let mut last = [0.0; W];
                last.iter_mut().zip(rest).for_each(|(to, value)| *to = value.widen());
                out.add(whole.len() * group_stride + k * W).cast::<[f32; W]>().write_unaligned(last);
            }
        }
    }
}

/// Packs as many lines as a vector has lanes, whose depth is contiguous in memory, as `[depth]` vectors that
/// are `to_stride` apart.
///
/// # Safety
/// The lines have the depth, and there is room; the machine has the instructions.
unsafe fn transpose<S: Lanes, T: Element>(a: Matrix<T>, depth: usize, to: *mut f32, to_stride: usize) {
    let lanes = S::F32_LANES;
    let whole = depth - depth % lanes;
    // SAFETY: the caller's promises.
    unsafe {
        if T::DTYPE == DType::F32 {
            for k in (0..whole).step_by(lanes) {
                S::transpose(a.data.add(k).cast(), a.row_stride, to.add(k * to_stride), to_stride);
            }
        } else {
            let mut wide = [0.0f32; 16 * WIDENED];
            for first in (0..whole).step_by(WIDENED) {
                let count = WIDENED.min(whole - first);
                enter::<S>(|_| widen(a.from(0, first), lanes, count, &mut wide));
                for k in (0..count).step_by(lanes) {
                    S::transpose(wide.as_ptr().add(k), WIDENED, to.add((first + k) * to_stride), to_stride);
                }
            }
        }
        for k in whole..depth {
            for line in 0..lanes {
                *to.add(k * to_stride + line) = (*a.data.add(line * a.row_stride + k)).widen();
            }
        }
    }
}

/// Converts the first `count` values of `lines` lines to f32.
///
/// # Safety
/// The lines have at least `count` values.
#[inline(always)]
unsafe fn widen<T: Element>(a: Matrix<T>, lines: usize, count: usize, wide: &mut [f32; 16 * WIDENED]) {
    for (line, wide) in wide.as_chunks_mut::<WIDENED>().0.iter_mut().enumerate().take(lines) {
        // SAFETY: the caller promises the line.
        let values = unsafe { std::slice::from_raw_parts(a.data.add(line * a.row_stride), count) };
        wide.iter_mut().zip(values).for_each(|(wide, value)| *wide = value.widen());
    }
}
