//! Binary cross-entropy of several independent labels for each row: PyTorch's
//! `BCEWithLogitsLoss(reduction="sum")`, as transformers uses it for `multi_label_classification`.
//!
//! Forward, for logits `z` `[M, C]` and labels `l` `[M, C]` of 0 or 1:
//! `loss_sum = sum over m, c of max(z, 0) - z l + ln(1 + exp(-|z|))`. The loss is a *sum*, because it is
//! divided by the count of the whole step (`M C` over all its rows), not by that of one micro-batch. A
//! prediction is correct if the label is 1 and `z > 0`, or the label is 0 and not `z > 0`. Only the logits
//! are saved.
//!
//! Backward: `dz = scale (sigmoid(z) - l)`, with `scale` the gradient of the step's loss with respect to
//! `loss_sum`.
//!
//! Logits are f32, bf16 or f16, and their gradient has the same dtype; the loss is computed in f64, the
//! gradient in f32. There are few labels and only one row for each example, so they are computed on the CPU,
//! which waits for a GPU. [`crate::linear_binary_cross_entropy`] is this loss fused with a linear map to one
//! logit.

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Result, Tensor};

use crate::tensor::check_len;

/// Returns the summed loss and the number of correct predictions: f64 `[2]` on the device of the logits. A
/// label that is neither 0 nor 1 is an error that names it.
pub fn forward(logits_mc: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let logits = checked(logits_mc, labels)?;
    let mut loss = 0.0;
    let mut correct = 0usize;
    for (&z, &label) in logits.iter().zip(labels) {
        let z = f64::from(z);
        loss += z.max(0.0) - z * f64::from(label) + (-z.abs()).exp().ln_1p();
        correct += usize::from((z > 0.0) == (label == 1));
    }
    Tensor::new(&[loss, correct as f64], logits_mc.device())
}

/// Returns the gradient of the logits, `[M, C]`.
pub fn backward(logits_mc: &Tensor, labels: &[u32], scale: f32) -> Result<Tensor> {
    let logits = checked(logits_mc, labels)?;
    let pairs = logits.iter().zip(labels);
    let gradient: Vec<f32> = pairs.map(|(&z, &label)| scale * (sigmoid(z) - label as f32)).collect();
    let gradient = Tensor::from_vec(gradient, logits_mc.shape(), &Device::Cpu)?;
    gradient.to_dtype(logits_mc.dtype())?.to_device(logits_mc.device())
}

/// The probability of label 1 for the logit `z`: `1 / (1 + exp(-z))`.
pub fn sigmoid(z: f32) -> f32 {
    1.0 / (1.0 + (-z).exp())
}

/// Checks the labels, and copies the logits to the CPU as f32, row by row.
fn checked(logits_mc: &Tensor, labels: &[u32]) -> Result<Vec<f32>> {
    let (rows, classes) = logits_mc.dims2()?;
    check_len("sigmoid cross entropy: labels", labels.len(), rows * classes)?;
    if let Some(label) = labels.iter().find(|label| **label > 1) {
        candle_core::bail!("sigmoid cross entropy: label {label} is neither 0 nor 1")
    }
    logits_mc.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}
