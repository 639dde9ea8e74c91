//! Squared error of a few numbers for each row: the loss of regression.
//!
//! Forward, for outputs `y` `[M, O]` and targets `t` `[M, O]`: `loss_sum = sum over m, o of (y - t)^2`. The
//! loss is a *sum*, because it is divided by the count of the whole step (`M O` over all its rows), not by
//! that of one micro-batch. Only the outputs are saved.
//!
//! Backward: `dy = 2 scale (y - t)`, with `scale` the gradient of the step's loss with respect to `loss_sum`.
//!
//! Outputs are f32, bf16 or f16, and their gradient has the same dtype; differences are f32, the loss is f64.
//! There are only one or a few numbers for each example, so they are computed on the CPU, which waits for a
//! GPU.

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Result, Tensor};

use crate::tensor::check_len;

/// Returns the summed loss and a zero (classification losses have the number of correct predictions there):
/// f64 `[2]` on the device of the outputs.
pub fn forward(outputs_mo: &Tensor, targets: &[f32]) -> Result<Tensor> {
    let sum = difference(outputs_mo, targets)?.to_dtype(DType::F64)?.sqr()?.sum_all()?.reshape(1)?;
    Tensor::cat(&[&sum, &sum.zeros_like()?], 0)?.to_device(outputs_mo.device())
}

/// Returns the gradient of the outputs, `[M, O]`.
pub fn backward(outputs_mo: &Tensor, targets: &[f32], scale: f32) -> Result<Tensor> {
    let gradient = (difference(outputs_mo, targets)? * (2.0 * f64::from(scale)))?;
    gradient.to_dtype(outputs_mo.dtype())?.to_device(outputs_mo.device())
}

/// `y - t` in f32 on the CPU.
fn difference(outputs_mo: &Tensor, targets: &[f32]) -> Result<Tensor> {
    let (rows, outputs) = outputs_mo.dims2()?;
    check_len("mean squared error: targets", targets.len(), rows * outputs)?;
    let targets = Tensor::from_slice(targets, (rows, outputs), &Device::Cpu)?;
    outputs_mo.to_device(&Device::Cpu)?.to_dtype(DType::F32)? - targets
}
