//! Zeroing of a fresh accumulator, on the CPU or a GPU, for ops that can add to a sum but not overwrite it.

use candle_core::{Result, Tensor};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::element::{Element, by_dtype};
use crate::parallel::BLOCK_VALUES;
use crate::tensor::with_values_mut;

impl<'a> Accumulator<'a> {
    /// Returns the sum, set to zero first if nothing was added to it yet. For ops that can add to a sum but
    /// not overwrite it.
    pub fn begin(self) -> Result<&'a Tensor> {
        if !self.begun {
            set_to_zero(self.sum)?;
        }
        Ok(self.sum)
    }
}

fn set_to_zero(sum: &Tensor) -> Result<()> {
    match Gpu::of(sum)? {
        Some(gpu) => gpu.clear(sum),
        None => by_dtype!("gradient", sum, T => with_values_mut::<T, _>(sum, |values| {
            values.par_chunks_mut(BLOCK_VALUES).for_each(|block| block.fill(T::narrow(0.0)));
        })),
    }
}
