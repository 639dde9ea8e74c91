//! The Euclidean norm of the flat gradient, for clipping, for the log, and to see that every gradient is finite.
//!
//! `norm = sqrt(sum over n of g[n]^2)` in f64 (f32 squares overflow from 1.8e19 and underflow below 1e-23). It is finite
//! exactly when every element is.

mod cpu;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::ops::tensor::unsupported;

/// The norm of a tensor of any shape; NaN or infinite when an element is.
pub fn l2(t: &Tensor) -> Result<f64> {
    match t.device() {
        Device::Cpu => cpu::l2(t),
        _ => unsupported("norm", t),
    }
}
