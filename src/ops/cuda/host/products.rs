//! Products on the CPU, element by element.

use super::super::Address;
use super::super::gemm::Gemm;
use super::super::gemm::Operand;
use crate::ops::element::Element;

/// The definition, element by element.
pub(super) unsafe fn product<T: Element, O: Element>(gemm: &Gemm, sums: Option<Address>) {
    let at = |operand: &Operand, row: usize, col: usize| {
        let (row, col) = if operand.transposed { (col, row) } else { (row, col) };
        // SAFETY: the caller promises matrices of these sizes.
        unsafe { *(operand.address.0 as *const T).add(row * operand.stride + col) }.widen()
    };
    for row in 0..gemm.m {
        if let Some(sums) = sums {
            // SAFETY: there is a sum for each row.
            unsafe { *(sums.0 as *mut f32).add(row) = (0..gemm.k).map(|k| at(&gemm.a, row, k)).sum() };
        }
        for col in 0..gemm.n {
            // SAFETY: as above.
            let out = unsafe { &mut *(gemm.out.0 as *mut O).add(row * gemm.n + col) };
            // SAFETY: a bias has `n` values of the type of the output.
            let bias = gemm.bias.map_or(0.0, |bias| unsafe { *(bias.0 as *const O).add(col) }.widen());
            let start = if gemm.accumulate { out.widen() } else { bias };
            let sum: f32 = (0..gemm.k).map(|k| at(&gemm.a, row, k) * at(&gemm.b, k, col)).sum();
            *out = O::narrow(start + sum);
        }
    }
}
