//! Bias, dropout with a given mask, residual and norm composed of candle functions.

use candle_core::{Result, Tensor};

use crate::residual_norm::Weights;
use crate::{dropout, layer_norm};

/// Returns `LN(residual + mask * (x + bias))`, and the sum that is normalised.
pub fn forward(
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    mask_td: &Tensor,
) -> Result<[Tensor; 2]> {
    let Weights { bias, norm_weight, norm_bias, eps, form } = *weights;
    let biased = bias.map_or(Ok(x_td.clone()), |bias| x_td.broadcast_add(bias))?;
    let sum = residual_td.add(&dropout::reference::forward(&biased, mask_td)?)?;
    Ok([layer_norm::reference::forward(form, &sum, norm_weight, norm_bias, eps)?, sum])
}
