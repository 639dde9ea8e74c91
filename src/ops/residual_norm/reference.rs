//! Bias, dropout with a given mask, residual and layer normalisation composed of candle functions.

use candle_core::{Result, Tensor};

use crate::{dropout, layer_norm};

/// Returns `LN(residual + mask * (x + bias))`, and the sum that is normalised.
pub fn forward(
    x_td: &Tensor,
    bias_d: &Tensor,
    residual_td: &Tensor,
    weight_d: &Tensor,
    norm_bias_d: &Tensor,
    eps: f64,
    mask_td: &Tensor,
) -> Result<[Tensor; 2]> {
    let kept = dropout::reference::forward(&x_td.broadcast_add(bias_d)?, mask_td)?;
    let sum = residual_td.add(&kept)?;
    Ok([layer_norm::reference::forward(&sum, weight_d, Some(norm_bias_d), eps)?, sum])
}
