//! AMX instructions: eight tile registers of 16 rows of 64 bytes, and an instruction that multiplies two of
//! them.
//!
//! Rust's intrinsics for AMX are not stable, so the instructions are written as assembly. Source: Intel 64
//! and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2 for each
//! instruction.

use std::arch::asm;

/// Number of rows of a register.
pub(super) const ROWS: usize = 16;

/// Bytes of a row of a register: 32 values of bf16, or 16 of f32.
pub(super) const ROW_BYTES: usize = 64;

/// Sizes of the registers as `ldtilecfg` reads them, for a product of two by two registers: 0 to 3 hold sums,
/// 4 and 5 rows of the left operand, 6 and 7 columns of the right one.
#[repr(C, align(64))]
struct Sizes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Sizes {
    /// Returns the sizes for `first` rows in the upper registers and `second` rows in the lower ones.
    const fn new(first: u8, second: u8) -> Self {
        let all = ROWS as u8;
        let rows = [first, first, second, second, first, second, all, all, 0, 0, 0, 0, 0, 0, 0, 0];
        let bytes = ROW_BYTES as u16;
        let row_bytes = [bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, 0, 0, 0, 0, 0, 0, 0, 0];
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// Configures the registers for `rows` rows on the left side, at their full size if there are `2 * ROWS`, and
/// clears them.
///
/// # Safety
/// AMX is available; until [`release`] the registers belong to the caller.
pub(super) unsafe fn configure(rows: usize) {
    static FULL: Sizes = Sizes::new(ROWS as u8, ROWS as u8);
    // SAFETY: the sizes are valid.
    unsafe {
        if rows >= 2 * ROWS {
            return load_sizes(&FULL);
        }
        // With 16 or fewer rows, [`multiply`] is called with `both` false and does not use the lower
        // registers, which must not be used without rows. They are given a valid size nevertheless.
        let second = if rows > ROWS { rows - ROWS } else { ROWS };
        load_sizes(&Sizes::new(rows.min(ROWS) as u8, second as u8));
    }
}

#[inline]
unsafe fn load_sizes(sizes: &Sizes) {
    // SAFETY: the caller's promise.
    unsafe { asm!("ldtilecfg [{sizes}]", sizes = in(reg) sizes, options(nostack, preserves_flags)) };
}

/// Clears the registers, so that the operating system no longer has to save them.
///
/// # Safety
/// AMX is available.
#[inline]
pub(super) unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
}

/// Left operand of a product: rows of bf16 whose depth is contiguous in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Address of the first value.
    pub(super) data: *const u8,
    /// Distance between rows, in bytes.
    pub(super) row_bytes: usize,
    /// Distance between row 0 and row [`ROWS`], in bytes.
    pub(super) second_bytes: usize,
    /// Distance between value 0 and value 32 of a row, in bytes.
    pub(super) step_bytes: usize,
}

/// f32 sums of a product, row by row. Only the address of this memory is used.
#[repr(align(64))]
pub(super) struct Sums(
    #[expect(dead_code, reason = "written by an instruction, read through a pointer")]
    [f32; 2 * ROWS * 2 * ROWS],
);

/// Computes `sums = left right` for 32 columns and, if `both`, for 32 rows, else for the 16 or fewer rows of
/// the upper registers. `right` has its values in pairs, `[16 count][32]` of 32 bits; the depth is 32
/// `count`.
///
/// # Safety
/// The registers are configured for the rows, and the operands cover them.
#[inline]
pub(super) unsafe fn multiply(both: bool, count: usize, left: Left, right: *const u32, sums: *mut Sums) {
    /// Bytes of a row of the right operand, which spans two registers of columns.
    const RIGHT_ROW_BYTES: usize = 2 * ROW_BYTES;
    let mut a = left.data;
    let mut b = right.cast::<u8>();
    // SAFETY: operands and sums are as large as the registers were configured, by the caller's promise.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nostack, nomem, preserves_flags)
        );
        for _ in 0..count {
            asm!(
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {wide}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b} + {wide} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                a = in(reg) a, row = in(reg) left.row_bytes, b = in(reg) b, wide = in(reg) RIGHT_ROW_BYTES,
                options(nostack, readonly, preserves_flags),
            );
            if both {
                asm!(
                    "tileloadd tmm5, [{second} + {row}]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    second = in(reg) a.add(left.second_bytes), row = in(reg) left.row_bytes,
                    options(nostack, readonly, preserves_flags),
                );
            }
            a = a.wrapping_add(left.step_bytes);
            b = b.wrapping_add(ROWS * RIGHT_ROW_BYTES);
        }
        let wide = RIGHT_ROW_BYTES;
        asm!(
            "tilestored [{out} + {wide}], tmm0", "tilestored [{out} + {wide} + 64], tmm1",
            out = in(reg) sums, wide = in(reg) wide, options(nostack, preserves_flags),
        );
        if both {
            asm!(
                "tilestored [{out} + {wide}], tmm2", "tilestored [{out} + {wide} + 64], tmm3",
                out = in(reg) sums.cast::<u8>().add(ROWS * wide), wide = in(reg) wide, options(nostack, preserves_flags),
            );
        }
    }
}

/// Multiplies registers repeatedly, which reaches this thread's peak performance. Returns the number of
/// floating-point operations.
///
/// # Safety
/// AMX is available.
pub(crate) unsafe fn chains(rounds: usize) -> f64 {
    /// Operations of one instruction: 16 x 16 sums of 32 products.
    const FLOPS: usize = 2 * ROWS * ROWS * 32;
    const CHAINS: usize = 4;
    // SAFETY: the registers are configured and read no memory.
    unsafe {
        configure(2 * ROWS);
        for _ in 0..rounds {
            asm!(
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                options(nostack, nomem, preserves_flags),
            );
        }
        release();
    }
    (rounds * CHAINS * FLOPS) as f64
}
