//! Softmax cross-entropy of a few classes whose targets are smoothed and whose classes have weights, as
//! PyTorch's `CrossEntropyLoss(weight, label_smoothing)` and, without weights, transformers' `LabelSmoother`.
//!
//! Forward, for logits `z` `[M, C]`, labels `l` `[M]`, weights `w` `[C]` and smoothing `e`: targets
//! `q[m, c] = w[c] ((1 - e) [c = l[m]] + e / C)` and `loss_sum = - sum over m, c of q log softmax(z)`; a
//! *sum*, because the count to divide by, of all examples, is that of the whole step.
//!
//! Backward: `dz[m, c] = scale (softmax(z)[m, c] sum over k of q[m, k] - q[m, c])`, with `scale` the gradient of
//! the step's loss by `loss_sum`. Nothing is saved but the logits.
//!
//! Logits are f32, bf16 or f16, and their gradient is of the same type; the arithmetic is f32, the loss is
//! f64. There are few classes and a row for each example: they are computed on the CPU, and a GPU is waited for.

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::D;
use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::tensor::check_len;

/// What targets are beside their labels.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftTargets {
    /// The share of each target that all classes have alike, e.
    pub smoothing: f32,
    /// What the loss of each class is multiplied by, `[C]`.
    pub weights: Vec<f32>,
}

impl SoftTargets {
    /// The targets of `labels`, `[M, C]`.
    fn of(&self, labels: &[u32]) -> Vec<f32> {
        let spread = self.smoothing / self.weights.len() as f32;
        let row = |&label: &u32| {
            let at =
                move |class| if class == label as usize { 1.0 - self.smoothing + spread } else { spread };
            self.weights.iter().enumerate().map(move |(class, weight)| weight * at(class))
        };
        labels.iter().flat_map(row).collect()
    }
}

/// The summed loss, and how many rows have their largest logit at the label: f64 `[2]`, on the device of the
/// logits; reading it waits for it.
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

/// The gradient of the logits, `[M, C]`.
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
    Tensor::from_vec(soft.of(labels), (rows, classes), &Device::Cpu)
}
