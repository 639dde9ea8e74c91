//! f32 products by the `gemm` crate, on processors for which it is the fastest implementation.

use std::mem::MaybeUninit;

use super::{Output, Term, cast_term};
use crate::element::Element;

/// Computes the terms one after the other; a bias is written to the output first, and the terms are added to
/// it.
///
/// # Safety
/// As [`super::sum_of_products`], with `T` f32.
pub(super) unsafe fn sum_of_products<T: Element>(
    m: usize,
    n: usize,
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
    for term in terms {
        // SAFETY: the caller promises the extents.
        unsafe { product(m, n, Output { accumulate, ..out }, cast_term(term), scale, parallel) };
        accumulate = true;
    }
}

fn parallelism(parallel: bool) -> gemm::Parallelism {
    if parallel { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None }
}

/// Computes a single product.
///
/// # Safety
/// The operands cover `[m, depth]` and `[depth, n]`, `out` covers `[m, n]`.
unsafe fn product(m: usize, n: usize, out: Output<'_, f32>, term: Term<f32>, scale: f32, parallel: bool) {
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
