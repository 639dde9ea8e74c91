//! Tiles of 32 x 32 by AMX: one instruction adds the products of 16 rows and 16 columns over a depth of 32.
//!
//! The right operand is packed in the same order as for `vdpbf16ps`. Rows of the left operand are read in
//! place if they begin at cache lines, and copied otherwise: a load that crosses cache lines takes five times
//! as long.

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_load_ps, _mm512_maskz_loadu_epi16, _mm512_permutex2var_epi16,
    _mm512_setzero_si512, _mm512_storeu_si512,
};
use std::mem::MaybeUninit;

use half::bf16;

use super::avx512_bf16::store;
use super::pairs::{COLS, LANES, lanes, pack_cols, pair_at, pairs_from, transpose, words};
use super::target::Target;
use super::tile_kernel::{Left, TileKernel};
use super::{Matrix, amx};
use crate::element::Element;

/// Kernel that multiplies bf16 by AMX.
pub(super) struct Kernel;

const ROWS: usize = 2 * amx::ROWS;

/// Elements of the depth that one multiplication processes.
const DEPTH: usize = amx::ROW_BYTES / size_of::<bf16>();

/// Pairs of values in that depth.
const PAIRS: usize = DEPTH / 2;

impl TileKernel for Kernel {
    type Operand = bf16;
    /// Two values that are neighbours in depth, the first in the low half.
    type Packed = u32;
    const STEP: usize = 2;
    const DEPTH_MULTIPLE: usize = DEPTH;
    // A strip of columns fills 64 KiB, a panel of rows 24.
    const DEPTH_BLOCK: usize = 1024;
    const ROW_BLOCK: Option<usize> = None;
    const SHARES_ROWS: bool = true;
    const LEAST_TASK: usize = 1 << 21;
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    unsafe fn begin() {
        // SAFETY: the caller promises the instructions.
        unsafe { amx::configure(ROWS) };
    }

    unsafe fn end() {
        // SAFETY: the caller promises the instructions.
        unsafe { amx::release() };
    }

    fn reads_in_place(a: Matrix<bf16>, depth: usize) -> bool {
        let at_lines =
            a.data.cast::<u8>().align_offset(amx::ROW_BYTES) == 0 && a.row_stride.is_multiple_of(DEPTH);
        a.col_stride == 1 && at_lines && depth.is_multiple_of(DEPTH)
    }

    /// Packs rows as panels `[depth / 32][ROWS][32]`.
    unsafe fn pack_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32, panel_stride: usize) {
        // SAFETY: the caller promises the extents and the instructions.
        unsafe {
            match (a.row_stride, a.col_stride) {
                (_, 1) => copy_rows(a, rows, depth, out, panel_stride),
                (1, _) => transpose_rows(a, rows, depth, out, panel_stride),
                _ => gather_rows(a, rows, depth, out, panel_stride),
            }
        }
    }

    unsafe fn pack_cols(b: Matrix<bf16>, cols: usize, depth: usize, out: *mut u32, strip_stride: usize) {
        // SAFETY: the caller promises the extents and the instructions.
        unsafe {
            pack_cols(b, cols, depth, out, strip_stride);
            let first = depth.div_ceil(2);
            let end = Self::steps(depth);
            for strip in 0..cols.div_ceil(COLS) {
                std::ptr::write_bytes(out.add(strip * strip_stride + first * COLS), 0, (end - first) * COLS);
            }
        }
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
        unsafe { tile(rows, cols, steps / PAIRS, &left, strip, &target) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn tile<O: Element>(
    rows: usize,
    cols: usize,
    count: usize,
    left: &Left<'_, Kernel>,
    strip: *const u32,
    target: &Target<O>,
) {
    // SAFETY: the caller promises that operands and target cover the tile; packed rows are always whole
    // panels.
    unsafe {
        if target.accumulate {
            // Gradients come from main memory: they are prefetched while the tile is computed.
            for row in 0..rows {
                let row = target.data.add(row * target.row_stride).cast::<i8>();
                _mm_prefetch::<_MM_HINT_T0>(row);
                _mm_prefetch::<_MM_HINT_T0>(row.add((cols - 1) * size_of::<O>()));
            }
        }
        let mut sums = MaybeUninit::<amx::Sums>::uninit();
        match left {
            Left::Packed(panel) => {
                let second_bytes = amx::ROWS * amx::ROW_BYTES;
                let data = panel.as_ptr().cast();
                let left =
                    amx::Left { data, row_bytes: amx::ROW_BYTES, second_bytes, step_bytes: 2 * second_bytes };
                amx::multiply(rows > amx::ROWS, count, left, strip, sums.as_mut_ptr());
            }
            Left::InPlace(a) => {
                let row_bytes = a.row_stride * size_of::<bf16>();
                let second_bytes = if rows > amx::ROWS { amx::ROWS * row_bytes } else { 0 };
                let left =
                    amx::Left { data: a.data.cast(), row_bytes, second_bytes, step_bytes: amx::ROW_BYTES };
                if rows < ROWS {
                    amx::configure(rows);
                }
                amx::multiply(rows > amx::ROWS, count, left, strip, sums.as_mut_ptr());
                if rows < ROWS {
                    amx::configure(ROWS);
                }
            }
        }
        let sums: *const f32 = sums.as_ptr().cast();
        for col in (0..cols).step_by(LANES) {
            let mask = lanes(cols - col);
            for row in 0..rows {
                store(_mm512_load_ps(sums.add(row * COLS + col)), row, col, mask, target);
            }
        }
    }
}

/// Packs panels of rows whose depth is contiguous in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn copy_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32, panel_stride: usize) {
    for row in 0..rows.next_multiple_of(ROWS) {
        for first in (0..depth).step_by(DEPTH) {
            // SAFETY: the row, if it exists, has the whole depth; the panel has room for `depth / 32` groups
            // of `ROWS` rows.
            unsafe {
                let line = if row < rows {
                    _mm512_maskz_loadu_epi16(
                        words(depth - first),
                        a.data.add(row * a.row_stride + first).cast(),
                    )
                } else {
                    _mm512_setzero_si512()
                };
                let panel = out.add(row / ROWS * panel_stride);
                _mm512_storeu_si512(panel.add((first / DEPTH * ROWS + row % ROWS) * PAIRS).cast(), line);
            }
        }
    }
}

/// Packs panels of an operand whose rows are neighbours in memory: squares of 16 rows by 16 pairs are
/// transposed.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn transpose_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32, panel_stride: usize) {
    let halves = [pairs_from(0), pairs_from(LANES)];
    for first in (0..depth).step_by(DEPTH) {
        for row in (0..rows).step_by(ROWS) {
            let mask = words(rows - row);
            let line = |k: usize| {
                if k < depth {
                    // SAFETY: line k has `rows` values, and the mask excludes everything past them.
                    unsafe { _mm512_maskz_loadu_epi16(mask, a.data.add(k * a.col_stride + row).cast()) }
                } else {
                    _mm512_setzero_si512()
                }
            };
            // SAFETY: the panel has room for `depth / 32` groups of `ROWS` rows.
            let group = unsafe { out.add(row / ROWS * panel_stride + first / DEPTH * ROWS * PAIRS) };
            for (half, order) in halves.iter().enumerate() {
                let mut square = [_mm512_setzero_si512(); LANES];
                for (i, pairs) in square.iter_mut().enumerate() {
                    let k = first + 2 * i;
                    *pairs = _mm512_permutex2var_epi16(line(k), *order, line(k + 1));
                }
                let square: [__m512i; LANES] = transpose(&square);
                for (i, pairs) in square.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { _mm512_storeu_si512(group.add((half * LANES + i) * PAIRS).cast(), *pairs) };
                }
            }
        }
    }
}

/// Packs panels of an operand with any strides, one pair after the other; for operands that are not in the
/// hot path of any caller.
unsafe fn gather_rows(a: Matrix<bf16>, rows: usize, depth: usize, out: *mut u32, panel_stride: usize) {
    for row in 0..rows.next_multiple_of(ROWS) {
        for pair in 0..Kernel::steps(depth) {
            // SAFETY: the panel has room for `depth / 32` groups of `ROWS` rows, and the caller promises the
            // operand.
            unsafe {
                let panel = out.add(row / ROWS * panel_stride);
                *panel.add((pair / PAIRS * ROWS + row % ROWS) * PAIRS + pair % PAIRS) =
                    pair_at(a, row, rows, 2 * pair, depth);
            }
        }
    }
}
