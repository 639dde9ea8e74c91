//! The beginning of a sum for ops that can only add: zeros, on the CPU or a GPU.

use candle_core::Result;
use candle_core::Tensor;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::parallel::BLOCK_VALUES;
use crate::tensor::with_slice_mut;

impl<'a> Accumulator<'a> {
    /// The sum with a beginning, for an op that can only add: zeros where there is none.
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
        None => with_slice_mut(sum, |values| {
            values.par_chunks_mut(BLOCK_VALUES).for_each(|block| block.fill(0.0));
        }),
    }
}
