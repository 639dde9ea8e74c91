//! Reference products on the CPU, computed element by element from their cuBLASLt descriptions with
//! column-major matrices.

use candle_core::{DType, bail};
use half::{bf16, f16};

use super::super::described::{Description, Epilogue, Layout};
use super::super::gemm::Gemm;
use super::super::{Address, rules};
use crate::element::Element;

/// Addresses of the matrices and the vector of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// Addresses of A, B and D.
    matrices: [Address; 3],
    vector: Address,
}

impl Places {
    pub(super) fn of(gemm: &Gemm, sums: Option<Address>) -> Self {
        let vector = gemm.bias.map(|bias| bias.address).or(sums).unwrap_or(Address::NULL);
        Self { matrices: [gemm.b.address, gemm.a.address, gemm.out.address], vector }
    }

    /// Returns the addresses of product number `number` of the batch.
    fn of_batch(&self, product: &Description, number: usize) -> Self {
        let mut places = *self;
        for (matrix, layout) in places.matrices.iter_mut().zip(&product.layouts) {
            *matrix = matrix.plus(number * layout.batch_stride * layout.dtype.size_in_bytes());
        }
        let bytes = number * product.vector_stride * product.vector.size_in_bytes();
        Self { vector: self.vector.plus(bytes), ..places }
    }
}

/// Fails if the product breaks a rule of the library.
pub(super) fn check(product: &Description) -> candle_core::Result<()> {
    match rules::check(product) {
        Ok(()) => Ok(()),
        Err(rule) => bail!("cuBLASLt would refuse {product:?}: {rule}"),
    }
}

/// Computes all products of a batch. Algorithm 0 sums in the order of the values, algorithm 1 first every
/// other value and then the rest, and so on.
///
/// # Safety
/// The matrices and the vectors are as large as the description says.
pub(super) unsafe fn run(product: &Description, places: Places, algorithm: usize) -> candle_core::Result<()> {
    (0..product.batch_count()).try_for_each(|number| {
        // SAFETY: the caller's promise.
        unsafe { one(product, places.of_batch(product, number), algorithm) }
    })
}

unsafe fn one(product: &Description, places: Places, algorithm: usize) -> candle_core::Result<()> {
    let [a, _, d] = product.layouts.map(|layout| layout.dtype);
    // SAFETY: the caller's promise.
    unsafe {
        match (a, d) {
            (DType::F32, DType::F32) => typed::<f32, f32>(product, places, algorithm),
            (DType::BF16, DType::BF16) => typed::<bf16, bf16>(product, places, algorithm),
            (DType::BF16, DType::F32) => typed::<bf16, f32>(product, places, algorithm),
            (DType::F16, DType::F16) => typed::<f16, f16>(product, places, algorithm),
            (DType::F16, DType::F32) => typed::<f16, f32>(product, places, algorithm),
            (a, b) => bail!("no product of {a:?} to {b:?}"),
        }
    }
    Ok(())
}

unsafe fn typed<T: Element, O: Element>(product: &Description, places: Places, algorithm: usize) {
    let [m, n, k] = product.sizes();
    let place = |layout: &Layout, row: usize, col: usize| layout.leading * col + row;
    let at = &|index: usize, row: usize, col: usize| {
        let (row, col) = if product.transposed[index] { (col, row) } else { (row, col) };
        let start = places.matrices[index].0 as *const T;
        // SAFETY: the caller promises matrices of these sizes.
        unsafe { *start.add(place(&product.layouts[index], row, col)) }.widen()
    };
    let vector = places.vector.0 as *mut O;
    // Columns of A and of B one after the other, each value widened once.
    let a: Vec<f32> = (0..k).flat_map(|depth| (0..m).map(move |row| at(0, row, depth))).collect();
    let b: Vec<f32> = (0..n).flat_map(|col| (0..k).map(move |depth| at(1, depth, col))).collect();
    // A sum for each row; the rows are independent, so the compiler adds several at once.
    let mut sums = vec![0.0; m];
    let mut part = vec![0.0; m];
    for col in 0..n {
        let column = &b[col * k..][..k];
        if product.epilogue == Epilogue::ColumnSumsOfB {
            // SAFETY: there is a sum for each column.
            unsafe { *vector.add(col) = O::narrow(column.iter().sum()) };
        }
        sums.fill(0.0);
        for first in 0..=algorithm {
            part.fill(0.0);
            for depth in (first..k).step_by(algorithm + 1) {
                let of_a = &a[depth * m..][..m];
                part.iter_mut().zip(of_a).for_each(|(sum, value)| *sum += value * column[depth]);
            }
            sums.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
        }
        for (row, sum) in sums.iter().enumerate() {
            let out = places.matrices[2].0 as *mut O;
            // SAFETY: as above.
            let out = unsafe { &mut *out.add(place(&product.layouts[2], row, col)) };
            let mut start = if product.accumulate { out.widen() } else { 0.0 };
            if product.epilogue == Epilogue::Bias {
                // SAFETY: a bias has a value for each row.
                start += unsafe { *vector.add(row) }.widen();
            }
            *out = O::narrow(start + sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::gemm::{Batch, Operand, Varying};
    use super::*;

    /// A leading dimension that is too large breaks no rule but changes the result: the control of the tests
    /// of all ops with products.
    #[test]
    fn a_leading_dimension_that_is_too_large_gives_other_numbers() {
        let a: Vec<f32> = (1..=64).map(|i| i as f32).collect();
        let b = vec![1.0f32; 64];
        let outcome = |leading: usize| {
            let mut out = [0.0f32; 4];
            let gemm = Gemm {
                m: 2,
                n: 2,
                k: 3,
                a: Operand::rows(Address(a.as_ptr() as u64), 3),
                b: Operand::rows(Address(b.as_ptr() as u64), 2),
                out: Operand::rows(Address(out.as_mut_ptr() as u64), 2),
                dtype: DType::F32,
                out_dtype: DType::F32,
                accumulate: false,
                bias: None,
                batch: Batch::ONE,
                varying: Varying::Nothing,
            };
            let mut product = Description::of(&gemm, None);
            product.layouts[1].leading = leading;
            check(&product).unwrap();
            // SAFETY: all matrices are within their buffers for the leading dimensions used below.
            unsafe { run(&product, Places::of(&gemm, None), 0) }.unwrap();
            out.map(f32::to_bits)
        };
        assert_eq!(outcome(3), [6.0f32, 6.0, 15.0, 15.0].map(f32::to_bits));
        assert_eq!(outcome(4), [6.0f32, 6.0, 18.0, 18.0].map(f32::to_bits));
    }
}
