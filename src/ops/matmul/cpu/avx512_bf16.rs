//! Tiles of 12 x 32 by `vdpbf16ps`, which adds the product of two pairs of bf16 to an f32 in each lane.
//!
//! 24 sums and two vectors of columns fill 26 of the 32 registers. A step is 24 multiplications, two loads
//! and 12 broadcasts, so the multiplier is the bottleneck (99 % of its peak on Zen 4 from a depth of 768 on).

use std::arch::x86_64::{
    __m256i, __m512, __m512bh, __m512i, __mmask16, _mm256_mask_storeu_epi16, _mm256_maskz_loadu_epi16,
    _mm512_add_ps, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtneps_pbh, _mm512_dpbf16_ps,
    _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_mask_storeu_ps, _mm512_maskz_loadu_epi16,
    _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_permutex2var_epi16, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi32,
};
use std::mem::MaybeUninit;

use candle_core::DType;
use half::bf16;

use super::Matrix;
use super::pairs::{COLS, LANES, gather, lanes, load_square, pack_cols, pairs_from, transpose, words};
use super::target::Target;
use super::tile_kernel::{Left, TileKernel};
use crate::element::Element;

/// Kernel that multiplies bf16 by AVX-512-BF16.
pub(super) struct Kernel;

const ROWS: usize = 12;

impl TileKernel for Kernel {
    type Operand = bf16;
    /// Two values that are neighbours in depth, the first in the low half.
    type Packed = u32;
    const STEP: usize = 2;
    const DEPTH_MULTIPLE: usize = 2;
    // A strip of columns fills 64 KiB, a panel of rows 24.
    const DEPTH_BLOCK: usize = 1024;
    const ROW_BLOCK: Option<usize> = None;
    const SHARES_ROWS: bool = false;
    const LEAST_TASK: usize = 1 << 19;
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    fn reads_in_place(a: Matrix<bf16>, depth: usize) -> bool {
        // With an odd depth, the last pair would read past the end of the row.
        a.col_stride == 1 && depth.is_multiple_of(2)
    }

    unsafe fn pack_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32, panel_stride: usize) {
        if a.row_stride == 1 {
            // SAFETY: the caller promises the extents and the instructions.
            return unsafe { interleave_rows(a, rows, depth, out, panel_stride) };
        }
        for (number, row) in (0..rows).step_by(ROWS).enumerate() {
            let count = ROWS.min(rows - row);
            // SAFETY: the caller promises the extents and the instructions.
            unsafe {
                let a = a.from(row, 0);
                let out = out.add(number * panel_stride);
                if a.col_stride == 1 {
                    transpose_rows(a, count, depth, out);
                } else {
                    gather(a, count, depth, out, ROWS);
                }
            }
        }
    }

    unsafe fn pack_cols(b: Matrix<bf16>, cols: usize, depth: usize, out: *mut u32, strip_stride: usize) {
        // SAFETY: the caller promises the extents and the instructions.
        unsafe { pack_cols(b, cols, depth, out, strip_stride) }
    }

    unsafe fn tile<O: Element>(
        rows: usize,
        cols: usize,
        steps: usize,
        left: Left<'_, Self>,
        strip: *const u32,
        target: Target<O>,
    ) {
        // SAFETY: the caller promises the extents and the instructions.
        unsafe {
            match left {
                Left::Packed(panel) => {
                    by_rows::<O, true>(rows, cols, steps, panel.as_ptr().cast(), 4, strip, &target);
                }
                Left::InPlace(a) => {
                    by_rows::<O, false>(rows, cols, steps, a.data.cast(), 2 * a.row_stride, strip, &target);
                }
            }
        }
    }
}

/// Calls the tile function for exactly this number of rows and vectors.
#[inline]
unsafe fn by_rows<O: Element, const PACKED: bool>(
    rows: usize,
    cols: usize,
    steps: usize,
    left: *const u8,
    row_bytes: usize,
    strip: *const u32,
    target: &Target<O>,
) {
    macro_rules! pick {
        ($($count:literal)*) => {
            match (rows, cols > LANES) {
                // SAFETY: the caller promises the extents and the instructions.
                $(($count, true) => unsafe { tile::<O, $count, 2, PACKED>(cols, steps, left, row_bytes, strip, target) },
                // SAFETY: as above.
                ($count, false) => unsafe { tile::<O, $count, 1, PACKED>(cols, steps, left, row_bytes, strip, target) },)*
                _ => unreachable!("a tile has 1 to 12 rows"),
            }
        };
    }
    pick!(1 2 3 4 5 6 7 8 9 10 11 12);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn tile<O: Element, const M: usize, const N: usize, const PACKED: bool>(
    cols: usize,
    steps: usize,
    left: *const u8,
    row_bytes: usize,
    strip: *const u32,
    target: &Target<O>,
) {
    // For packed rows these are compile-time constants, so that one register addresses all rows.
    let (row_bytes, step_bytes) = if PACKED { (4, 4 * ROWS) } else { (row_bytes, 4) };
    if target.accumulate {
        target.prefetch(M, cols);
    }
    let mut sums = [[_mm512_setzero_ps(); N]; M];
    let mut left = left;
    let mut strip = strip;
    for _ in 0..steps {
        // SAFETY: strip and rows hold `steps` steps; rows in place need no alignment.
        unsafe {
            let mut columns = [_mm512_setzero_si512(); N];
            for (j, column) in columns.iter_mut().enumerate() {
                *column = _mm512_loadu_si512(strip.add(j * LANES).cast());
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let pair = _mm512_set1_epi32(left.add(i * row_bytes).cast::<i32>().read_unaligned());
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_dpbf16_ps(*sum, as_pairs(pair), as_pairs(column));
                }
            }
            left = left.add(step_bytes);
            strip = strip.add(COLS);
        }
    }
    // The sums go through memory: a loop over registers would have to be unrolled together with all cases of
    // storing.
    let mut tile = [[MaybeUninit::<__m512>::uninit(); N]; M];
    for (tile, sums) in tile.iter_mut().zip(sums) {
        for (tile, sum) in tile.iter_mut().zip(sums) {
            tile.write(sum);
        }
    }
    for (i, tile) in tile.iter().enumerate() {
        for (j, sum) in tile.iter().enumerate() {
            // SAFETY: the sum was written above; the mask excludes everything past the last column.
            unsafe { store(sum.assume_init(), i, j * LANES, lanes(cols - j * LANES), target) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn as_pairs(lanes: __m512i) -> __m512bh {
    // SAFETY: both types are 64 bytes, and every bit pattern is valid.
    unsafe { std::mem::transmute(lanes) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn store<O: Element>(
    sum: __m512,
    row: usize,
    col: usize,
    mask: __mmask16,
    target: &Target<O>,
) {
    // SAFETY: the caller promises that (row, col) and the lanes of the mask are inside the target.
    unsafe {
        let mut value = sum;
        if !target.partial.is_null() {
            value = _mm512_add_ps(
                value,
                _mm512_maskz_loadu_ps(mask, target.partial.add(row * target.partial_stride + col)),
            );
        }
        value = _mm512_mul_ps(value, _mm512_set1_ps(target.scale));
        if !target.bias.is_null() {
            value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, target.bias.add(col)));
        }
        let at = target.data.add(row * target.row_stride + col);
        if O::DTYPE == DType::F32 {
            let at: *mut f32 = at.cast();
            if target.accumulate {
                value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, at));
            }
            _mm512_mask_storeu_ps(at, mask, value);
        } else {
            let at: *mut i16 = at.cast();
            if target.accumulate {
                let there = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at));
                value = _mm512_add_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32::<16>(there)));
            }
            let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(value));
            _mm256_mask_storeu_epi16(at, mask, rounded);
        }
    }
}

/// Packs all panels of an operand whose rows are neighbours in memory: reads two lines sequentially and
/// writes one step of each panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn interleave_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32, panel_stride: usize) {
    // One load of each line fills two panels.
    let low = pairs_from(0);
    let high = pairs_from(ROWS);
    let whole = lanes(ROWS);
    for k in (0..depth).step_by(2) {
        let mut row = 0;
        let mut to = k / 2 * ROWS;
        while row < rows {
            let mask = words((rows - row).min(2 * ROWS));
            // SAFETY: the lines k and, if it exists, k + 1 have `rows` values; each panel has room for a step
            // of `ROWS`, and the second one is written only if it exists.
            unsafe {
                let line =
                    |k: usize| _mm512_maskz_loadu_epi16(mask, a.data.add(k * a.col_stride + row).cast());
                let first = line(k);
                let second = if k + 1 < depth { line(k + 1) } else { _mm512_setzero_si512() };
                _mm512_mask_storeu_epi32(
                    out.add(to).cast(),
                    whole,
                    _mm512_permutex2var_epi16(first, low, second),
                );
                if row + ROWS < rows {
                    let pairs = _mm512_permutex2var_epi16(first, high, second);
                    _mm512_mask_storeu_epi32(out.add(to + panel_stride).cast(), whole, pairs);
                }
            }
            row += 2 * ROWS;
            to += 2 * panel_stride;
        }
    }
}

/// Packs one panel of an operand whose depth is contiguous in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn transpose_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32) {
    let steps = depth.div_ceil(2);
    let mask = lanes(ROWS);
    for step in (0..steps).step_by(LANES) {
        // SAFETY: `rows` rows of this depth exist; the panel has room for a step of `ROWS` for each pair.
        unsafe {
            let square = transpose(&load_square(a.data.add(2 * step), a.row_stride, rows, depth - 2 * step));
            for (i, line) in square.iter().enumerate().take(steps - step) {
                _mm512_mask_storeu_epi32(out.add((step + i) * ROWS).cast(), mask, *line);
            }
        }
    }
}
