//! Squared error of a few numbers for each row, as regression learns them.
//!
//! Forward, for outputs `y` `[M, O]` and targets `t` `[M, O]`: `loss_sum = sum over m, o of (y - t)^2`; a
//! *sum*, because the count to divide by, `M O` for all rows of the step, is that of the whole step. Nothing
//! is saved but the outputs.
//!
//! Backward: `dy = 2 scale (y - t)`, with `scale` the gradient of the step's loss by `loss_sum`.
//!
//! Outputs are f32, bf16 or f16, and their gradient is of the same type; differences are f32, the loss is
//! f64. There are as many numbers as examples, or a few times that: they are computed on the CPU, and a GPU is
//! waited for.

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::tensor::check_len;

/// The summed loss, and a zero where losses of classes count what is right: f64 `[2]`, on the device of the
/// outputs; reading it waits for it.
pub fn forward(outputs_mo: &Tensor, targets: &[f32]) -> Result<Tensor> {
    let sum = difference(outputs_mo, targets)?.to_dtype(DType::F64)?.sqr()?.sum_all()?.reshape(1)?;
    Tensor::cat(&[&sum, &sum.zeros_like()?], 0)?.to_device(outputs_mo.device())
}

/// The gradient of the outputs, `[M, O]`.
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
