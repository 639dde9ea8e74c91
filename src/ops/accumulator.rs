//! [`Accumulator`]: the gradient of one parameter, to which each micro-batch of a step adds. The method that
//! zeroes a fresh one is in `begin.rs`.

use candle_core::Tensor;

/// A sum that is accumulated in place.
#[derive(Debug, Clone, Copy)]
pub struct Accumulator<'a> {
    /// The sum so far, f32; the gradient of a linear map may have a half type.
    pub sum: &'a Tensor,
    /// True if `sum` is valid and is added to. False if the values in `sum` are meaningless; then the first
    /// summand overwrites them.
    pub begun: bool,
}

impl<'a> From<&'a Tensor> for Accumulator<'a> {
    /// An accumulator whose `sum` is valid and is added to.
    fn from(sum: &'a Tensor) -> Self {
        Self { sum, begun: true }
    }
}
