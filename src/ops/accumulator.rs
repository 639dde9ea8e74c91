//! The gradient of a parameter, which grows over the micro-batches of a step.

use candle_core::Result;
use candle_core::Tensor;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;

use crate::ops::cuda::Gpu;
use crate::ops::parallel::BLOCK_VALUES;
use crate::ops::tensor::with_slice_mut;

/// A sum that grows where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Accumulator<'a> {
    /// f32.
    pub sum: &'a Tensor,
    /// Whether there is something to add to; else what stands in `sum` has no meaning, and the first summand
    /// takes its place.
    pub begun: bool,
}

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

impl<'a> From<&'a Tensor> for Accumulator<'a> {
    /// A sum that was begun.
    fn from(sum: &'a Tensor) -> Self {
        Self { sum, begun: true }
    }
}
