//! The Euclidean norm of the flat gradient, for clipping, for the log, and to see that every gradient is
//! finite.
//!
//! `norm = sqrt(sum over n of g[n]^2)` in f64 (f32 squares overflow from 1.8e19 and underflow below 1e-23).
//! It is finite exactly when every element is. It stays on the device: the optimizer reads it there, so
//! that the CPU does not wait for it.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;

use crate::cuda::Gpu;

/// The norm of an f32 tensor of any shape, f64 `[1]`; NaN or infinite when an element is.
pub fn l2(t: &Tensor) -> Result<Tensor> {
    match Gpu::of(t)? {
        None => cpu::l2(t),
        Some(gpu) => cuda::l2(&gpu, t),
    }
}

/// Makes `norm` NaN unless the first of `totals` (a loss, f64) is finite: what is updated by the norm then
/// stays as it is.
pub fn poison(norm: &Tensor, totals: &Tensor) -> Result<()> {
    match Gpu::of(norm)? {
        None => cpu::poison(norm, totals),
        Some(gpu) => cuda::poison(&gpu, norm, totals),
    }
}
