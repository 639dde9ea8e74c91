//! Binary cross-entropy composed of candle functions.

use candle_core::{Result, Tensor};

/// The sum of `max(z, 0) - z l + ln(1 + exp(-|z|))`, a scalar.
pub fn forward(logits_mc: &Tensor, labels_mc: &Tensor) -> Result<Tensor> {
    let rest = (logits_mc.abs()?.neg()?.exp()? + 1.0)?.log()?;
    (logits_mc.relu()? - logits_mc.mul(labels_mc)? + rest)?.sum_all()
}
