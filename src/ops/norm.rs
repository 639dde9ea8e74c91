//! The Euclidean norm of the flat gradient, for clipping, for the log, and to check that every gradient is
//! finite.
//!
//! `norm = sqrt(sum over n of g[n]^2)` in f64 (f32 squares overflow from 1.8e19 and underflow below 1e-23).
//! The norm is finite exactly if every element is. It stays on the device, where the optimizer reads it, so
//! that the CPU does not wait for it.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;

/// The norm of an f32 tensor of any shape, f64 `[1]`; NaN or infinite if an element is.
pub fn l2(t: &Tensor) -> Result<Tensor> {
    l2_of_parts(&[t])
}

/// The norm of several tensors together, f64 `[1]`; each may be f32, bf16 or f16.
pub fn l2_of_parts(parts: &[&Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else { bail!("norm: there is no tensor") };
    match Gpu::of(first)? {
        None => cpu::l2(parts),
        Some(gpu) => cuda::l2(&gpu, parts),
    }
}

/// Sets `norm` to NaN unless the first of `totals` (a loss, f64) is finite. An optimizer update that is
/// clipped by this norm then changes nothing.
pub fn poison(norm: &Tensor, totals: &Tensor) -> Result<()> {
    match Gpu::of(norm)? {
        None => cpu::poison(norm, totals),
        Some(gpu) => cuda::poison(&gpu, norm, totals),
    }
}
