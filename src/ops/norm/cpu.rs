//! The norm on the CPU: sums of squares of fixed blocks, added in order.

use candle_core::{Result, Tensor};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

use crate::simd::kernel;
use crate::tensor::{from_vec, values, with_slice};
use crate::{parallel, simd};

pub(super) fn l2(t: &Tensor) -> Result<Tensor> {
    let blocks: Vec<f64> =
        with_slice(t, |x| x.par_chunks(parallel::BLOCK_VALUES).map(sum_of_squares).collect())?;
    from_vec(vec![blocks.iter().sum::<f64>().sqrt()], 1)
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
