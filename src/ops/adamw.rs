//! AdamW (Loshchilov and Hutter 2019) over the flat buffers, in one pass: exactly the update of
//! `torch.optim.AdamW`.
//!
//! For each element, with `g` the gradient times `gradient_multiplier` and `t` the number of this update,
//! counted from 1: `p *= 1 - lr * weight_decay`; `m += (1 - beta1) * (g - m)`;
//! `v = beta2 * v + (1 - beta2) * g^2`; `p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`.
//!
//! A group may scale `lr` by its own factor (`lr_scale`). Without `bias_correction` both `1 - beta^t` are 1.
//!
//! The multiplier includes the clipping factor and the inverse of the loss scale, which therefore need no
//! pass of their own. `p`, `m` and `v` are updated in place. If there is a shadow, each new parameter is
//! rounded into it in the same pass. Elements outside of all groups are frozen parameters: their value,
//! moments and shadow do not change.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;

use crate::cuda::Gpu;
use crate::update::Groups;
pub use crate::update::{Buffers, Group, Hyper};

/// Applies one update in place to all elements of `groups`, which must be in ascending order, within `N`, and
/// must not overlap.
pub fn update<'a>(buffers: Buffers<'_>, groups: impl Into<Groups<'a>>, hyper: &Hyper) -> Result<()> {
    update_compiled(buffers, groups.into(), hyper)
}

fn update_compiled(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    buffers.check("adamw", groups, hyper)?;
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups, hyper),
        Some(gpu) => cuda::update(&gpu, buffers, groups, hyper),
    }
}
