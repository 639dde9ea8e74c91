//! Binary cross-entropy of several labels a row, each there or not: PyTorch's
//! `BCEWithLogitsLoss(reduction="sum")`, as transformers uses it for `multi_label_classification`.
//!
//! Forward, for logits `z` `[M, C]` and labels `l` `[M, C]` of 0 or 1:
//! `loss_sum = sum over m, c of max(z, 0) - z l + ln(1 + exp(-|z|))`; a *sum*, because the count to divide
//! by, `M C` for all rows of the step, is that of the whole step. A label counts as told right where `z > 0`
//! is what it is. Nothing is saved but the logits.
//!
//! Backward: `dz = scale (sigmoid(z) - l)`, with `scale` the gradient of the step's loss by `loss_sum`.
//!
//! Logits are f32, bf16 or f16, and their gradient is of the same type; the arithmetic of the loss is f64,
//! that of the gradient f32. There are few labels and a row for each example: they are computed on the CPU,
//! and a GPU is waited for. With a linear map to one logit before it, it is
//! [`crate::linear_binary_cross_entropy`].

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::tensor::check_len;

/// The summed loss, and how many labels are told right: f64 `[2]`, on the device of the logits; reading it
/// waits for it. An error names a label that is neither 0 nor 1.
pub fn forward(logits_mc: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let logits = checked(logits_mc, labels)?;
    let (mut loss, mut correct) = (0.0, 0usize);
    for (&z, &label) in logits.iter().zip(labels) {
        let z = f64::from(z);
        loss += z.max(0.0) - z * f64::from(label) + (-z.abs()).exp().ln_1p();
        correct += usize::from((z > 0.0) == (label == 1));
    }
    Tensor::new(&[loss, correct as f64], logits_mc.device())
}

/// The gradient of the logits, `[M, C]`.
pub fn backward(logits_mc: &Tensor, labels: &[u32], scale: f32) -> Result<Tensor> {
    let logits = checked(logits_mc, labels)?;
    let slope = |(&z, &label): (&f32, &u32)| scale * (sigmoid(z) - label as f32);
    let gradient: Vec<f32> = logits.iter().zip(labels).map(slope).collect();
    let gradient = Tensor::from_vec(gradient, logits_mc.shape(), &Device::Cpu)?;
    gradient.to_dtype(logits_mc.dtype())?.to_device(logits_mc.device())
}

/// `1 / (1 + exp(-z))`: the probability of a label.
pub fn sigmoid(z: f32) -> f32 {
    1.0 / (1.0 + (-z).exp())
}

/// The logits on the CPU in f32, row by row.
fn checked(logits_mc: &Tensor, labels: &[u32]) -> Result<Vec<f32>> {
    let (rows, classes) = logits_mc.dims2()?;
    check_len("sigmoid cross entropy: labels", labels.len(), rows * classes)?;
    if let Some(label) = labels.iter().find(|label| **label > 1) {
        candle_core::bail!("sigmoid cross entropy: label {label} is neither 0 nor 1")
    }
    logits_mc.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}
