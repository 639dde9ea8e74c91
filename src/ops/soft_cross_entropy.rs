//! Softmax cross-entropy of a few classes with label smoothing and class weights: the same as PyTorch's
//! `CrossEntropyLoss(weight, label_smoothing)` and, without weights, transformers' `LabelSmoother`.
//!
//! Forward, for logits `z` `[M, C]`, labels `l` `[M]`, weights `w` `[C]` and smoothing `e`: targets
//! `q[m, c] = w[c] ((1 - e) [c = l[m]] + e / C)` and `loss_sum = - sum over m, c of q log softmax(z)`. The
//! loss is a *sum*, because it is divided by the number of examples of the whole step, not of one
//! micro-batch.
//!
//! Backward: `dz[m, c] = scale (softmax(z)[m, c] sum over k of q[m, k] - q[m, c])`, with `scale` the gradient
//! of the step's loss with respect to `loss_sum`. Only the logits are saved.
//!
//! Logits are f32, bf16 or f16, and their gradient has the same dtype; the arithmetic is f32, the loss is
//! f64. There are few classes and only one row for each example, so they are computed on the CPU, which waits
//! for a GPU.

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{D, DType, Device, Result, Tensor};

use crate::tensor::check_len;

/// Label smoothing and class weights, from which targets are made.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftTargets {
    /// The smoothing `e`: the part of the probability that is spread evenly over all classes.
    pub smoothing: f32,
    /// The factor of the loss of each class, `[C]`.
    pub weights: Vec<f32>,
}

impl SoftTargets {
    /// The targets `q` of `labels`, `[M, C]`.
    fn targets(&self, labels: &[u32]) -> Vec<f32> {
        let spread = self.smoothing / self.weights.len() as f32;
        let mut targets = Vec::with_capacity(labels.len() * self.weights.len());
        for &label in labels {
            targets.extend(self.weights.iter().enumerate().map(|(class, weight)| {
                let share = if class == label as usize { 1.0 - self.smoothing + spread } else { spread };
                weight * share
            }));
        }
        targets
    }
}

/// Returns the summed loss, and the number of rows whose largest logit is that of the label: f64 `[2]` on the
/// device of the logits.
pub fn forward(logits_mc: &Tensor, labels: &[u32], soft: &SoftTargets) -> Result<Tensor> {
    let targets = targets(logits_mc, labels, soft)?;
    if labels.is_empty() {
        return Tensor::zeros(2, DType::F64, logits_mc.device());
    }
    let logits = on_host(logits_mc)?;
    let losses = candle_nn::ops::log_softmax(&logits, D::Minus1)?.mul(&targets)?;
    let loss = losses.to_dtype(DType::F64)?.sum_all()?.neg()?.reshape(1)?;
    let labels = Tensor::from_slice(labels, labels.len(), logits.device())?;
    let right = logits.argmax(D::Minus1)?.eq(&labels)?.to_dtype(DType::F64)?.sum_all()?.reshape(1)?;
    Tensor::cat(&[&loss, &right], 0)?.to_device(logits_mc.device())
}

/// Returns the gradient of the logits, `[M, C]`.
pub fn backward(logits_mc: &Tensor, labels: &[u32], soft: &SoftTargets, scale: f32) -> Result<Tensor> {
    let targets = targets(logits_mc, labels, soft)?;
    if labels.is_empty() {
        return Ok(logits_mc.clone());
    }
    let log_probabilities = candle_nn::ops::log_softmax(&on_host(logits_mc)?, D::Minus1)?;
    let pulled = log_probabilities.exp()?.broadcast_mul(&targets.sum_keepdim(D::Minus1)?)?;
    let gradient = ((pulled - targets)? * f64::from(scale))?;
    gradient.to_dtype(logits_mc.dtype())?.to_device(logits_mc.device())
}

fn on_host(logits: &Tensor) -> Result<Tensor> {
    logits.to_device(&Device::Cpu)?.to_dtype(DType::F32)
}

/// The targets on the CPU, f32; an error names a label that is not below `C`.
fn targets(logits_mc: &Tensor, labels: &[u32], soft: &SoftTargets) -> Result<Tensor> {
    let (rows, classes) = logits_mc.dims2()?;
    check_len("soft cross entropy: labels", labels.len(), rows)?;
    check_len("soft cross entropy: weights", soft.weights.len(), classes)?;
    if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
        candle_core::bail!("soft cross entropy: label {label} is not below {classes}")
    }
    Tensor::from_vec(soft.targets(labels), (rows, classes), &Device::Cpu)
}
