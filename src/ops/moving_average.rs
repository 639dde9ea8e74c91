//! The exponential moving average of the weights, over the flat buffers.
//!
//! `update`: `a += (1 - decay) * (w - a)`, the update of `torch.optim.swa_utils.get_ema_multi_avg_fn`.
//! `exchange`: `a` and `w` exchange their values, so that a model can compute with its average and then
//! continue with its weights, without a third buffer.
//!
//! Both buffers are f32 `[N]` and are changed in place; they must not share memory. Nothing is saved: no
//! gradient flows through an average.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::cuda::Gpu;
use crate::tensor::check_shape;

/// Moves `average_n` towards `weights_n`; it keeps the share `decay` of itself.
pub fn update(average_n: &Tensor, weights_n: &Tensor, decay: f64) -> Result<()> {
    check_shape("moving average: weights", weights_n, &[average_n.dims1()?])?;
    // Computed in f64 and rounded once: in f32, 1 - 0.9999 would be off by 2e-4 of its value.
    let rest = (1.0 - decay) as f32;
    match Gpu::of(average_n)? {
        None => cpu::update(average_n, weights_n, rest),
        Some(gpu) => cuda::update(&gpu, average_n, weights_n, rest),
    }
}

/// Exchanges the values of `average_n` and `weights_n`.
pub fn exchange(average_n: &Tensor, weights_n: &Tensor) -> Result<()> {
    check_shape("moving average: weights", weights_n, &[average_n.dims1()?])?;
    match Gpu::of(average_n)? {
        None => cpu::exchange(average_n, weights_n),
        Some(gpu) => cuda::exchange(&gpu, average_n, weights_n),
    }
}
