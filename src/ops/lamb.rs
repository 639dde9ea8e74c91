//! LAMB (You et al. 2020, arXiv:1904.00962) over the flat buffers, as NVIDIA's BERT recipes run it (apex
//! `FusedLAMB`).
//!
//! For each element, with `g` the gradient times `gradient_multiplier` and `t` the number of this update,
//! counted from 1: `m += (1 - beta1) * (g - m)`; `v = beta2 * v + (1 - beta2) * g^2`; `u = m / (1 - beta1^t)
//! / (sqrt(v) / sqrt(1 - beta2^t) + eps) + weight_decay * p`; `p -= lr * ratio * u`.
//!
//! A group is one tensor. Its `ratio` is `|p| / |u|`, with norms over the group in f64 and `p` before the
//! update; it is 1 if either norm is 0, and if the group has no weight decay (biases and `LayerNorm`).
//!
//! The op makes two passes. The first updates the moments and sums the squares of `p` and `u` over fixed
//! blocks, whose sums are added in order. The second recomputes `u` from `m`, `v` and `p`, which costs less
//! than storing it, and applies it. `gradient_multiplier` includes clipping. The shadow and frozen elements
//! are as in [`crate::adamw`].

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;

use crate::cuda::Gpu;
use crate::update::{Buffers, Groups, Hyper};

/// Applies one update in place to all elements of `groups`, which must be in ascending order, within `N`, and
/// must not overlap.
pub fn update<'a>(buffers: Buffers<'_>, groups: impl Into<Groups<'a>>, hyper: &Hyper) -> Result<()> {
    update_compiled(buffers, groups.into(), hyper)
}

fn update_compiled(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    buffers.check("lamb", groups, hyper)?;
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups, hyper),
        Some(gpu) => cuda::update(&gpu, buffers, groups, hyper),
    }
}
