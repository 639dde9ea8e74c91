//! The norm on the CPU: sums of squares of fixed blocks, added in order.

use candle_core::{DType, Result, Tensor};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

use crate::element::{Element, by_dtype};
use crate::simd::kernel;
use crate::tensor::{from_vec, values};
use crate::{parallel, simd};

pub(super) fn l2(parts: &[&Tensor]) -> Result<Tensor> {
    let mut blocks = Vec::new();
    for part in parts {
        blocks.extend(by_dtype!("norm", part, T => squares::<T>(part))?);
    }
    from_vec(vec![blocks.iter().sum::<f64>().sqrt()], 1)
}

/// The sum of squares of each block.
fn squares<T: Element>(t: &Tensor) -> Result<Vec<f64>> {
    let values = values::<T>(t)?;
    let blocks = values.par_chunks(parallel::BLOCK_VALUES).map(|block| {
        // An f32 block is read in place.
        let mut room = vec![0.0; if T::DTYPE == DType::F32 { 0 } else { block.len() }];
        sum_of_squares(T::widen_row(block, &mut room))
    });
    Ok(blocks.collect())
}

pub(super) fn poison(norm: &Tensor, totals: &Tensor) -> Result<()> {
    if values::<f64>(totals)?[0].is_finite() {
        Ok(())
    } else {
        norm.const_set(candle_core::scalar::Scalar::F64(f64::NAN))
    }
}

kernel! {
    fn sum_of_squares(x: &[f32]) -> f64 {
        simd::sum_of_squares(x)
    }
}
