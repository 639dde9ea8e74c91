//! Layer normalisation composed of candle functions. candle-nn's own `LayerNorm` is no reference: it cuts
//! gradients.

use candle_core::D;
use candle_core::Result;
use candle_core::Tensor;

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension.
pub fn forward(x_td: &Tensor, weight_d: &Tensor, bias_d: &Tensor, eps: f64) -> Result<Tensor> {
    let centred = x_td.broadcast_sub(&x_td.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    centred.broadcast_div(&(variance + eps)?.sqrt()?)?.broadcast_mul(weight_d)?.broadcast_add(bias_d)
}
