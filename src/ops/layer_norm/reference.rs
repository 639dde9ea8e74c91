//! Layer normalisation composed of candle functions. candle-nn's own `LayerNorm` cannot serve as reference,
//! because its result does not propagate gradients.

use candle_core::{D, Result, Tensor};

use crate::layer_norm::Form;

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension; the bias is optional. For
/// RMSNorm the mean is taken for 0.
pub fn forward(
    form: Form,
    x_td: &Tensor,
    weight_d: &Tensor,
    bias_d: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let centred = match form {
        Form::LayerNorm => x_td.broadcast_sub(&x_td.mean_keepdim(D::Minus1)?)?,
        Form::RmsNorm => x_td.clone(),
    };
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let scaled = centred.broadcast_div(&(variance + eps)?.sqrt()?)?.broadcast_mul(weight_d)?;
    bias_d.map_or(Ok(scaled.clone()), |bias_d| scaled.broadcast_add(bias_d))
}
