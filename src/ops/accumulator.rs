//! The gradient of a parameter, which grows over the micro-batches of a step. `begin.rs` begins it.

use candle_core::Tensor;

/// A sum that grows where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Accumulator<'a> {
    /// f32.
    pub sum: &'a Tensor,
    /// Whether there is something to add to; else what stands in `sum` has no meaning, and the first summand
    /// takes its place.
    pub begun: bool,
}

impl<'a> From<&'a Tensor> for Accumulator<'a> {
    /// A sum that was begun.
    fn from(sum: &'a Tensor) -> Self {
        Self { sum, begun: true }
    }
}
