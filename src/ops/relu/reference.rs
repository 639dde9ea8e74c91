//! Bias and rectified linear unit composed of candle functions.

use candle_core::{Result, Tensor};

/// `max(x + bias, 0)`.
pub fn forward(x_bd: &Tensor, bias_d: &Tensor) -> Result<Tensor> {
    x_bd.broadcast_add(bias_d)?.relu()
}
