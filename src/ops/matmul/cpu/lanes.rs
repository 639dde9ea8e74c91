//! f32 vectors for the tiles of `fma.rs`: 256 bits of AVX2, or 512 bits of AVX-512.

use std::arch::x86_64::{
    __m256, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps,
    _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm512_loadu_si512,
    _mm512_setzero_si512, _mm512_storeu_si512,
};

use pulp::x86::{V3, V4};
use pulp::{Simd, WithSimd};

use super::pairs::transpose;

/// Vectors of an instruction set.
pub(super) trait Lanes: Simd {
    /// Number of vectors in a row of a tile.
    const VECTORS: usize;

    /// Returns the token with which `pulp` gives access to the instructions.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn token() -> Self;

    /// Writes the transpose of `F32_LANES` lines, `stride` apart, of `F32_LANES` values each. The output
    /// lines are `to_stride` apart and written in order, so that a later line overwrites an earlier one that
    /// it overlaps.
    ///
    /// # Safety
    /// The machine has the instructions, and both squares are inside allocated memory.
    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize);
}

impl Lanes for V3 {
    const VECTORS: usize = 2;

    unsafe fn token() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new_unchecked() }
    }

    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller's promises.
        unsafe { transpose_8(from, stride, to, to_stride) }
    }
}

impl Lanes for V4 {
    const VECTORS: usize = 4;

    unsafe fn token() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new_unchecked() }
    }

    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller's promises.
        unsafe { transpose_16(from, stride, to, to_stride) }
    }
}

/// Calls `f`, compiled for the instructions of `S`; `f` only calls a function that is `#[inline(always)]`.
///
/// # Safety
/// The machine has the instructions.
pub(super) unsafe fn enter<S: Lanes>(f: impl FnOnce(S)) {
    struct Body<S, F>(S, F);
    impl<S: Lanes, F: FnOnce(S)> WithSimd for Body<S, F> {
        type Output = ();
        #[inline(always)]
        fn with_simd<Same: Simd>(self, _: Same) {
            (self.1)(self.0);
        }
    }
    // SAFETY: the caller's promise.
    let simd = unsafe { S::token() };
    simd.vectorize(Body(simd, f));
}

#[target_feature(enable = "avx2")]
unsafe fn transpose_8(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    let mut lines = [_mm256_setzero_ps(); 8];
    for (i, line) in lines.iter_mut().enumerate() {
        // Lines of the next square: the hardware prefetcher does not follow eight parallel streams.
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add((8 + i) * stride).cast());
        // SAFETY: the caller promises eight lines of eight values.
        *line = unsafe { _mm256_loadu_ps(from.add(i * stride)) };
    }
    let mut pairs = lines;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(lines[2 * i], lines[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(lines[2 * i], lines[2 * i + 1]);
    }
    let mut fours: [__m256; 8] = pairs;
    for i in 0..2 {
        let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
        fours[4 * i] = _mm256_shuffle_ps::<0x44>(a, c);
        fours[4 * i + 1] = _mm256_shuffle_ps::<0xee>(a, c);
        fours[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b, d);
        fours[4 * i + 3] = _mm256_shuffle_ps::<0xee>(b, d);
    }
    let mut columns = fours;
    for i in 0..4 {
        columns[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[4 + i]);
        columns[4 + i] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[4 + i]);
    }
    for (i, column) in columns.into_iter().enumerate() {
        // SAFETY: the caller promises eight lines of room.
        unsafe { _mm256_storeu_ps(to.add(i * to_stride), column) };
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn transpose_16(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    let mut lines = [_mm512_setzero_si512(); 16];
    for (i, line) in lines.iter_mut().enumerate() {
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add((16 + i) * stride).cast());
        // SAFETY: the caller promises sixteen lines of sixteen values.
        *line = unsafe { _mm512_loadu_si512(from.add(i * stride).cast()) };
    }
    for (i, line) in transpose(&lines).into_iter().enumerate() {
        // SAFETY: the caller promises sixteen lines of room.
        unsafe { _mm512_storeu_si512(to.add(i * to_stride).cast(), line) };
    }
}
