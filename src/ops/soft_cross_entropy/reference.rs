//! Soft cross-entropy composed of candle functions, term by term as in PyTorch's definition.

use candle_core::{D, Result, Tensor};

/// `(1 - e) w[l] nll + e / C sum over c of w[c] (-log p[c])`, summed over the rows to a scalar. `one_hot_mc`
/// has a one at the label of each row.
pub fn forward(
    logits_mc: &Tensor,
    one_hot_mc: &Tensor,
    weights_c: &Tensor,
    smoothing: f64,
) -> Result<Tensor> {
    let classes = logits_mc.dim(1)? as f64;
    let losses = candle_nn::ops::log_softmax(logits_mc, D::Minus1)?.neg()?.broadcast_mul(weights_c)?;
    let of_labels = (losses.mul(one_hot_mc)?.sum_all()? * (1.0 - smoothing))?;
    of_labels + (losses.sum_all()? * (smoothing / classes))?
}
