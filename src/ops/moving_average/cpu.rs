//! The moving average on the CPU: one pass over both buffers, bound by memory, in blocks over all threads.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use crate::parallel::BLOCK_VALUES;
use crate::simd::kernel;
use crate::tensor::{values, with_slice_mut};

pub(super) fn update(average_n: &Tensor, weights_n: &Tensor, rest: f32) -> Result<()> {
    let weights = values::<f32>(weights_n)?;
    with_slice_mut(average_n, |average| {
        let blocks = average.par_chunks_mut(BLOCK_VALUES).zip(weights.par_chunks(BLOCK_VALUES));
        blocks.for_each(|(average, weights)| approach(average, weights, rest));
    })
}

kernel! {
    fn approach(average: &mut [f32], weights: &[f32], rest: f32) {
        for (average, weight) in average.iter_mut().zip(weights) {
            *average = rest.mul_add(weight - *average, *average);
        }
    }
}

pub(super) fn exchange(average_n: &Tensor, weights_n: &Tensor) -> Result<()> {
    with_slice_mut(average_n, |average| {
        with_slice_mut(weights_n, |weights| {
            let blocks = average.par_chunks_mut(BLOCK_VALUES).zip(weights.par_chunks_mut(BLOCK_VALUES));
            blocks.for_each(|(average, weights)| average.swap_with_slice(weights));
        })
    })?
}
