//! AdamW (Loshchilov and Hutter 2019) over the flat buffers, in one pass: exactly the update of `torch.optim.AdamW`.
//!
//! For each element, with `g` the gradient times `gradient_multiplier` and `t` the number of this update, from 1:
//! `p *= 1 - lr * weight_decay`; `m += (1 - beta1) * (g - m)`; `v = beta2 * v + (1 - beta2) * g^2`;
//! `p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`.
//!
//! The multiplier folds the division by the count of targets and the clipping factor into the pass; `p`, `m`, `v` are
//! updated in place, and the gradients are set to zero in the same pass when asked. Elements outside of all groups keep
//! their value and moments: frozen parameters.

mod cpu;
pub mod reference;
#[cfg(test)]
mod tests;

use std::ops::Range;

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::ops::tensor::check_shape;
use crate::ops::tensor::unsupported;

/// A range of the flat buffer with its own weight decay.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Elements of the flat buffers.
    pub range: Range<usize>,
    /// Decoupled weight decay, per unit of learning rate.
    pub weight_decay: f32,
}

/// The numbers of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyper {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment, outside of the root.
    pub eps: f64,
    /// The number of this update, counted from 1.
    pub step: u64,
    /// Every gradient is multiplied by this first.
    pub gradient_multiplier: f32,
    /// Whether the gradients are set to zero once used, ready for the next step.
    pub clear_gradients: bool,
}

/// The four buffers, each `[N]` f32. They must not share memory: an update would wait on its own lock.
#[derive(Debug, Clone, Copy)]
pub struct Buffers<'a> {
    /// Parameters.
    pub parameters: &'a Tensor,
    /// Gradients.
    pub gradients: &'a Tensor,
    /// m.
    pub first_moment: &'a Tensor,
    /// v.
    pub second_moment: &'a Tensor,
}

/// One update in place of all elements of `groups`, which must be in ascending order, apart, and within `N`.
pub fn update(buffers: Buffers<'_>, groups: &[Group], hyper: &Hyper) -> Result<()> {
    let Buffers { parameters, gradients, first_moment, second_moment } = buffers;
    let count = parameters.dims1()?;
    for (what, t) in [("gradients", gradients), ("first moment", first_moment), ("second moment", second_moment)] {
        check_shape(&format!("adamw: {what}"), t, &[count])?;
    }
    let mut end = 0;
    for Group { range, .. } in groups {
        if range.start < end || range.end < range.start || range.end > count {
            bail!("adamw: group {range:?} does not follow {end} within the {count} parameters");
        }
        end = range.end;
    }
    if hyper.step == 0 {
        bail!("adamw: steps count from 1");
    }
    match parameters.device() {
        Device::Cpu => cpu::update(buffers, groups, hyper),
        _ => unsupported("adamw", parameters),
    }
}
