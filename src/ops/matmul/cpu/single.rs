//! Products of f32 by the `gemm` crate.
//!
//! It takes AVX-512 wherever the processor has it and cannot be told not to. Its parts can be called one by
//! one, though: where only AVX2 may be used, they are put together here as `gemm` does it on a processor
//! without AVX-512.

use std::mem::MaybeUninit;

use super::Output;
use super::Term;
use super::cast_term;
use crate::ops::element::Element;
use crate::ops::instructions;
use crate::ops::instructions::Instructions;

/// The terms one after the other; the bias is laid down first and added to.
///
/// # Safety
/// As [`super::sum_of_products`], with `T` f32.
pub(super) unsafe fn sum_of_products<T: Element>(
    (m, n): (usize, usize),
    out: Output<'_, f32>,
    terms: &[Term<T>],
    scale: f32,
    parallel: bool,
) {
    let mut accumulate = out.accumulate;
    if let Some(bias) = out.bias {
        for row in 0..m {
            // SAFETY: `out` covers `[m, n]`.
            let room = unsafe {
                std::slice::from_raw_parts_mut(
                    out.data.add(row * out.row_stride).cast::<MaybeUninit<f32>>(),
                    n,
                )
            };
            room.iter_mut().zip(&bias[..n]).for_each(|(out, bias)| _ = out.write(*bias));
        }
        accumulate = true;
    }
    let product = if instructions::in_use() == Instructions::Avx2 { by_avx2 } else { by_any };
    for term in terms {
        // SAFETY: the caller promises the extents, and the machine has the instructions.
        unsafe { product((m, n), Output { accumulate, ..out }, cast_term(term), scale, parallel) };
        accumulate = true;
    }
}

fn parallelism(parallel: bool) -> gemm::Parallelism {
    if parallel { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None }
}

/// One product by the widest instructions of the machine.
///
/// # Safety
/// The operands cover `[m, depth]` and `[depth, n]`, `out` covers `[m, n]`.
unsafe fn by_any((m, n): (usize, usize), out: Output<'_, f32>, term: Term<f32>, scale: f32, parallel: bool) {
    let Term { a, b, depth } = term;
    // SAFETY: the caller promises the extents; gemm reads and writes nothing outside them.
    unsafe {
        gemm::gemm(
            m,
            n,
            depth,
            out.data,
            1,
            out.row_stride as isize,
            out.accumulate,
            a.data,
            a.col_stride as isize,
            a.row_stride as isize,
            b.data,
            b.col_stride as isize,
            b.row_stride as isize,
            1.0f32,
            scale,
            false,
            false,
            false,
            parallelism(parallel),
        );
    }
}

/// One product by AVX2: what `gemm::gemm` does where there is no AVX-512. It wants columns, so that the
/// transpose is computed.
///
/// # Safety
/// As [`by_any`], and the machine has AVX2.
#[cfg(target_arch = "x86_64")]
unsafe fn by_avx2((m, n): (usize, usize), out: Output<'_, f32>, term: Term<f32>, scale: f32, parallel: bool) {
    use gemm_common::gemm::gemm_basic_generic;
    use gemm_common::simd::MixedSimd;
    use gemm_common::simd::V3;
    use gemm_f32::microkernel::fma::f32 as kernels;

    /// f32 values of a vector.
    const LANES: usize = 8;
    let Some(simd) = <V3 as MixedSimd<f32, f32, f32, f32>>::try_new() else {
        unreachable!("AVX2 is in use where the machine has it alone")
    };
    let Term { a, b, depth } = term;
    // SAFETY: the caller promises the extents; gemm reads and writes nothing outside them.
    unsafe {
        gemm_basic_generic::<
            _,
            f32,
            LANES,
            { kernels::MR_DIV_N * LANES },
            { kernels::NR },
            { kernels::MR_DIV_N },
            { kernels::H_M },
            { kernels::H_N },
        >(
            simd,
            n,
            m,
            depth,
            out.data,
            out.row_stride as isize,
            1,
            out.accumulate,
            b.data,
            b.row_stride as isize,
            b.col_stride as isize,
            a.data,
            a.row_stride as isize,
            a.col_stride as isize,
            1.0f32,
            scale,
            false,
            false,
            false,
            |a, b, c| a * b + c,
            &kernels::UKR,
            &kernels::H_UKR,
            false,
            parallelism(parallel),
        );
    }
}

/// AVX2 is in use on x86-64 alone.
#[cfg(not(target_arch = "x86_64"))]
use by_any as by_avx2;
