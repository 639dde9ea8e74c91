//! Lion (Chen et al. 2023, arXiv:2302.06675, program 1) over the flat buffers, in one pass.
//!
//! For each element, with `g` the gradient times `gradient_multiplier`: `c = beta1 * m + (1 - beta1) * g`;
//! `p -= lr * (sign(c) + weight_decay * p)`; `m = beta2 * m + (1 - beta2) * g`. The sign of zero is zero.
//!
//! Every element moves by the learning rate, so that rates are three to ten times smaller than those of
//! AdamW, and weight decays larger by the same factor. There is one state tensor, no bias correction and no
//! `eps`. Shadow, clipping, `lr_scale` and frozen elements are as in [`crate::adamw`].

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
pub fn update<'a>(buffers: Buffers<'_, 1>, groups: impl Into<Groups<'a>>, hyper: &Hyper) -> Result<()> {
    update_compiled(buffers, groups.into(), hyper)
}

fn update_compiled(buffers: Buffers<'_, 1>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    buffers.check("lion", groups, hyper)?;
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups, hyper),
        Some(gpu) => cuda::update(&gpu, buffers, groups, hyper),
    }
}
