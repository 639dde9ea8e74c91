//! The moving average composed of candle functions.

use candle_core::{Result, Tensor};

/// `decay * a + (1 - decay) * w`.
pub fn update(average_n: &Tensor, weights_n: &Tensor, decay: f64) -> Result<Tensor> {
    (average_n * decay)? + (weights_n * (1.0 - decay))?
}
