//! The norm on the CPU: sums of squares of fixed blocks, added in order.

use candle_core::Result;
use candle_core::Tensor;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

use crate::ops::parallel;
use crate::ops::simd::kernel;
use crate::ops::tensor::with_slice;

/// Independent partial sums of one block.
const LANES: usize = 16;

pub(super) fn l2(t: &Tensor) -> Result<f64> {
    let blocks: Vec<f64> = with_slice(t, |x| x.par_chunks(parallel::BLOCK_VALUES).map(sum_of_squares).collect())?;
    Ok(blocks.iter().sum::<f64>().sqrt())
}

kernel! {
    fn sum_of_squares(x: &[f32]) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let (whole, rest) = x.as_chunks::<LANES>();
        for chunk in whole {
            for (sum, v) in lanes.iter_mut().zip(chunk) {
                *sum = f64::from(*v).mul_add(f64::from(*v), *sum);
            }
        }
        for (sum, v) in lanes.iter_mut().zip(rest) {
            *sum = f64::from(*v).mul_add(f64::from(*v), *sum);
        }
        lanes.iter().sum()
    }
}
