//! Packing of bf16 operands for dot-product instructions: two values that are neighbours in depth share 32
//! bits.

use std::arch::x86_64::{
    __m512i, __mmask16, __mmask32, _MM_HINT_T0, _mm_prefetch, _mm512_loadu_si512, _mm512_maskz_loadu_epi16,
    _mm512_permutex2var_epi16, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use half::bf16;

use super::Matrix;

/// Number of 32-bit lanes of a vector.
pub(super) const LANES: usize = 16;

/// Number of columns of a strip.
pub(super) const COLS: usize = 2 * LANES;

/// Packs columns of `b` as strips `[pair][COLS]`, `strip_stride` apart, with zeros past the last column and
/// the end of the depth.
///
/// # Safety
/// `b` must cover `[depth, cols]`, `out` must have room for the strips; the machine has AVX-512.
pub(super) unsafe fn pack_cols(
    b: Matrix<bf16>,
    cols: usize,
    depth: usize,
    out: *mut u32,
    strip_stride: usize,
) {
    // SAFETY: the caller promises the extents and the instructions.
    unsafe {
        match (b.row_stride, b.col_stride) {
            (_, 1) => interleave_cols(b, cols, depth, out, strip_stride),
            (1, _) => transpose_cols(b, cols, depth, out, strip_stride),
            _ => {
                for (number, col) in (0..cols).step_by(COLS).enumerate() {
                    gather(
                        b.from(0, col).transposed(),
                        COLS.min(cols - col),
                        depth,
                        out.add(number * strip_stride),
                        COLS,
                    );
                }
            }
        }
    }
}

/// Returns a mask of the first `count` of 16 lanes.
pub(super) fn lanes(count: usize) -> __mmask16 {
    if count >= LANES { u16::MAX } else { (1 << count) - 1 }
}

/// Returns the permutation that interleaves two lines from their value `first` on: one value of the first
/// line, one of the second, and so on.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn pairs_from(first: usize) -> __m512i {
    let mut order = [0u16; 2 * LANES];
    for (i, index) in order.iter_mut().enumerate() {
        *index = (first + i / 2 + i % 2 * 2 * LANES) as u16;
    }
    // SAFETY: the array is 64 bytes.
    unsafe { _mm512_loadu_si512(order.as_ptr().cast()) }
}

/// Returns a mask of the first `count` of 32 values.
#[inline(always)]
pub(super) fn words(count: usize) -> __mmask32 {
    if count >= 2 * LANES { u32::MAX } else { (1 << count) - 1 }
}

/// Packs all strips of an operand whose columns are contiguous in memory: reads two lines sequentially and
/// writes one step of each strip.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn interleave_cols(b: Matrix<bf16>, cols: usize, depth: usize, out: *mut u32, strip_stride: usize) {
    let low = pairs_from(0);
    let high = pairs_from(LANES);
    for k in (0..depth).step_by(2) {
        let mut col = 0;
        let mut to = k / 2 * COLS;
        while col < cols {
            let mask = words(cols - col);
            // SAFETY: the lines k and, if it exists, k + 1 have `cols` values; each strip has room for a step
            // of `COLS`.
            unsafe {
                let line =
                    |k: usize| _mm512_maskz_loadu_epi16(mask, b.data.add(k * b.row_stride + col).cast());
                let first = line(k);
                let second = if k + 1 < depth { line(k + 1) } else { _mm512_setzero_si512() };
                _mm512_storeu_si512(out.add(to).cast(), _mm512_permutex2var_epi16(first, low, second));
                _mm512_storeu_si512(
                    out.add(to + LANES).cast(),
                    _mm512_permutex2var_epi16(first, high, second),
                );
            }
            col += COLS;
            to += strip_stride;
        }
    }
}

/// Packs all strips of an operand whose depth is contiguous in memory: squares of 16 columns by 16 pairs are
/// transposed.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn transpose_cols(b: Matrix<bf16>, cols: usize, depth: usize, out: *mut u32, strip_stride: usize) {
    let steps = depth.div_ceil(2);
    for col in (0..cols.next_multiple_of(COLS)).step_by(LANES) {
        for step in (0..steps).step_by(LANES) {
            // SAFETY: the columns from `col` on, if any, have the whole depth; the strip has room for `steps`
            // steps.
            unsafe {
                let there = cols.saturating_sub(col);
                let first = b.data.add(if there > 0 { col * b.col_stride + 2 * step } else { 0 });
                if cols > col + LANES {
                    // Lines of the next columns: the hardware prefetcher does not follow sixteen parallel
                    // streams.
                    for i in 0..LANES.min(cols - col - LANES) {
                        _mm_prefetch::<_MM_HINT_T0>(first.add((LANES + i) * b.col_stride).cast());
                    }
                }
                let square = transpose(&load_square(first, b.col_stride, there, depth - 2 * step));
                for (i, line) in square.iter().enumerate().take(steps - step) {
                    _mm512_storeu_si512(
                        out.add(col / COLS * strip_stride + (step + i) * COLS + col % COLS).cast(),
                        *line,
                    );
                }
            }
        }
    }
}

/// Loads the next 16 pairs, at most `depth` values, of up to 16 lines that are `stride` apart; the rest is
/// zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn load_square(
    first: *const bf16,
    stride: usize,
    lines: usize,
    depth: usize,
) -> [__m512i; LANES] {
    let mask = words(depth);
    let mut square = [_mm512_setzero_si512(); LANES];
    for (i, line) in square.iter_mut().enumerate().take(lines) {
        // SAFETY: the line exists, and the mask excludes values past the end of the depth.
        *line = unsafe { _mm512_maskz_loadu_epi16(mask, first.add(i * stride).cast()) };
    }
    square
}

/// Returns the transpose of a 16 x 16 square of 32-bit lanes, computed in four rounds of exchanges.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose(rows: &[__m512i; LANES]) -> [__m512i; LANES] {
    let mut pairs = *rows;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    let mut fours = pairs;
    for i in 0..4 {
        let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
        fours[4 * i] = _mm512_unpacklo_epi64(a, c);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(a, c);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(b, d);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    let mut eights = fours;
    for i in 0..4 {
        for half in 0..2 {
            let a = fours[8 * half + i];
            let b = fours[8 * half + 4 + i];
            eights[8 * half + i] = _mm512_shuffle_i32x4::<0x88>(a, b);
            eights[8 * half + 4 + i] = _mm512_shuffle_i32x4::<0xdd>(a, b);
        }
    }
    let mut columns = eights;
    for i in 0..8 {
        let a = eights[i];
        let b = eights[8 + i];
        columns[i] = _mm512_shuffle_i32x4::<0x88>(a, b);
        columns[8 + i] = _mm512_shuffle_i32x4::<0xdd>(a, b);
    }
    columns
}

/// Packs `lines` rows of a matrix with any strides as `[step][width]`; for operands that are not in the hot
/// path of any caller.
///
/// # Safety
/// `a` must cover `[lines, depth]`, `out` must have room.
pub(super) unsafe fn gather(a: Matrix<bf16>, lines: usize, depth: usize, out: *mut u32, width: usize) {
    for step in 0..depth.div_ceil(2) {
        for line in 0..width {
            // SAFETY: the caller promises operand and room.
            unsafe { *out.add(step * width + line) = pair_at(a, line, lines, 2 * step, depth) };
        }
    }
}

/// Returns the values at depth `k` and `k + 1` of a line as a pair, with zeros past the last line and the end
/// of the depth.
///
/// # Safety
/// `a` must cover `[lines, depth]`.
pub(super) unsafe fn pair_at(a: Matrix<bf16>, line: usize, lines: usize, k: usize, depth: usize) -> u32 {
    let mut pair = 0;
    for i in 0..2 {
        if line < lines && k + i < depth {
            // SAFETY: (line, k + i) is inside the operand.
            let value = unsafe { *a.data.add(line * a.row_stride + (k + i) * a.col_stride) };
            pair |= u32::from(value.to_bits()) << (16 * i);
        }
    }
    pair
}
