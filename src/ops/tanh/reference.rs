//! Bias and hyperbolic tangent composed of candle functions.

use candle_core::{Result, Tensor};

/// `tanh(x + bias)`.
pub fn forward(x_bd: &Tensor, bias_d: &Tensor) -> Result<Tensor> {
    x_bd.broadcast_add(bias_d)?.tanh()
}
