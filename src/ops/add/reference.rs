//! The definition of correct.

use candle_core::Result;
use candle_core::Tensor;

/// `a + b`.
pub fn sum(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a + b
}
