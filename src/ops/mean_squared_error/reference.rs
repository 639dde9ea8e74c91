//! Squared error composed of candle functions.

use candle_core::{Result, Tensor};

/// The sum of `(y - t)^2`, a scalar.
pub fn forward(outputs_mo: &Tensor, targets_mo: &Tensor) -> Result<Tensor> {
    outputs_mo.sub(targets_mo)?.sqr()?.sum_all()
}
