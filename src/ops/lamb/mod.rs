//! LAMB (You et al. 2020, arXiv:1904.00962) over the flat buffers, as NVIDIA's BERT recipes run it (apex
//! `FusedLAMB`).
//!
//! For each element, with `g` the gradient times `gradient_multiplier` and `t` the number of this update,
//! from 1: `m += (1 - beta1) * (g - m)`; `v = beta2 * v + (1 - beta2) * g^2`; `u = m / (1 - beta1^t) /
//! (sqrt(v) / sqrt(1 - beta2^t) + eps) + weight_decay * p`; `p -= lr * ratio * u`.
//!
//! A group is one tensor. Its `ratio` is `|p| / |u|`, norms over the group in f64 and of `p` before the
//! update; it is 1 where either norm is 0, and where the group does not decay (biases and `LayerNorm`).
//!
//! Two passes: the first updates the moments and sums the squares of `p` and `u` over fixed blocks, added in
//! order; the second computes `u` again from `m`, `v` and `p`, which costs less than a buffer for it, and
//! applies it. Clipping is the multiplier's. The shadow and frozen elements are as in [`crate::adamw`].

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;

use crate::cuda::Gpu;
use crate::update::Buffers;
use crate::update::Groups;
use crate::update::Hyper;

/// One update in place of all elements of `groups`, which must be in ascending order, apart, and within `N`.
pub fn update<'a>(buffers: Buffers<'_>, groups: impl Into<Groups<'a>>, hyper: &Hyper) -> Result<()> {
    let groups = groups.into();
    buffers.check("lamb", groups.list, hyper)?;
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups.list, hyper),
        Some(gpu) => cuda::update(&gpu, buffers, groups, hyper),
    }
}
