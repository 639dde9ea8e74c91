//! StableAdamW (Wortsman et al. 2023, arXiv:2304.13013, algorithm 2) over the flat buffers: AdamW whose
//! learning rate is lowered for a tensor while its gradients are larger than its second moment expects.
//!
//! For each element, with `g` the gradient times `gradient_multiplier` and `t` the number of this update,
//! counted from 1: `m += (1 - beta1) * (g - m)`; `v = beta2 * v + (1 - beta2) * g^2`. With `w = v / (1 -
//! beta2^t)`, a group, which is one tensor, has `rms = sqrt(mean(g^2 / max(w, eps^2)))` and the learning rate
//! `rate = lr / max(1, rms)`. Then `p *= 1 - rate * weight_decay`, and
//! `p -= rate / (1 - beta1^t) * m / (sqrt(w) + eps)`.
//!
//! That is `StableAdamW` of torch-optimi, Hugging Face's `stable_adamw`, whose state has the corrected
//! moments. Without `bias_correction` both `1 - beta^t` are 1.
//!
//! The op makes two passes, as [`crate::lamb`]: the first updates the moments and sums the squares over fixed
//! blocks, whose sums are added in order; the second applies the update. Shadow, clipping, `lr_scale` and
//! frozen elements are as in [`crate::adamw`].

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
    buffers.check("stable_adamw", groups, hyper)?;
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups, hyper),
        Some(gpu) => cuda::update(&gpu, buffers, groups, hyper),
    }
}
