//! Softmax cross-entropy composed of candle functions.

use candle_core::{D, Result, Tensor};

/// The sum over the rows of `log(sum(exp(z))) - z[label]`, a scalar.
pub fn forward(logits_mv: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let log_probabilities = candle_nn::ops::log_softmax(logits_mv, D::Minus1)?;
    // A product with the one-hot matrix rather than a gather: exact, and differentiable to any order.
    let classes = Tensor::arange(0, logits_mv.dim(1)? as u32, logits_mv.device())?.unsqueeze(0)?;
    let labels = Tensor::new(labels, logits_mv.device())?.unsqueeze(1)?;
    let one_hot = classes.broadcast_eq(&labels)?.to_dtype(logits_mv.dtype())?;
    log_probabilities.mul(&one_hot)?.sum_all()?.neg()
}
