//! The norm composed of candle functions.

use candle_core::{Result, Tensor};

/// The square root of the sum of squares, a scalar.
pub fn l2(t: &Tensor) -> Result<Tensor> {
    t.sqr()?.sum_all()?.sqrt()
}
