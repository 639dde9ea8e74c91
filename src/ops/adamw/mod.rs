//! AdamW (Loshchilov and Hutter 2019) over the flat buffers, in one pass: exactly the update of
//! `torch.optim.AdamW`.
//!
//! For each element, with `g` the gradient times `gradient_multiplier` and `t` the number of this update,
//! from 1: `p *= 1 - lr * weight_decay`; `m += (1 - beta1) * (g - m)`; `v = beta2 * v + (1 - beta2) * g^2`;
//! `p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`.
//!
//! A group may have a share of `lr` (`lr_scale`). Without `bias_correction` both `1 - beta^t` are 1.
//!
//! The multiplier folds the clipping factor and the inverse of the loss scale into the pass; `p`, `m`, `v`
//! are updated in place, and in the same pass each new parameter is rounded into the shadow, where there is
//! one. Elements outside of all groups keep their value, moments and shadow: frozen parameters.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;

use crate::cuda::Gpu;
pub use crate::update::Buffers;
pub use crate::update::Group;
use crate::update::Groups;
pub use crate::update::Hyper;

/// One update in place of all elements of `groups`, which must be in ascending order, apart, and within `N`.
pub fn update<'a>(buffers: Buffers<'_>, groups: impl Into<Groups<'a>>, hyper: &Hyper) -> Result<()> {
    let groups = groups.into();
    buffers.check("adamw", groups.list, hyper)?;
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups.list, hyper),
        Some(gpu) => cuda::update(&gpu, buffers, groups, hyper),
    }
}
