//! Types that the optimizers share: the flat buffers, groups with their own weight decay, and the
//! hyper-parameters of one update.
//!
//! The update rules themselves are in `adamw`, `lamb`, `lion`, `muon` and `stable_adamw`.

pub(super) mod cpu;
pub(super) mod cuda;
#[cfg(test)]
pub(super) mod half_gradients;
#[cfg(test)]
pub(super) mod whole_tensors;

use std::ops::{Deref, Range};
use std::sync::Mutex;

use candle_core::{Result, Tensor, bail};

use crate::tensor::check_shape;
use cuda::Table;

/// A range of the flat buffer with its own weight decay and share of the learning rate; one tensor, if the
/// update rule needs sums over tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Elements of the flat buffers.
    pub range: Range<usize>,
    /// Weight decay, per unit of learning rate.
    pub weight_decay: f32,
    /// Factor of the learning rate.
    pub lr_scale: f32,
}

/// Place of the gradients of a group or a parameter, if matrix products write some gradients in bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientPlace {
    /// True if they are in the bf16 buffer, false if they are in the f32 buffer.
    pub is_half: bool,
    /// Element of that buffer at which they begin.
    pub start: usize,
}

/// The groups of an optimizer, which never change, and their table on the GPU, which the first update
/// uploads.
#[derive(Debug)]
pub struct KeptGroups {
    list: Vec<Group>,
    places: Vec<GradientPlace>,
    table: Mutex<Option<Table>>,
}

impl KeptGroups {
    /// Keeps these groups, which must be in ascending order and must not overlap.
    pub fn new(list: Vec<Group>) -> Self {
        Self::with_places(list, Vec::new())
    }

    /// As [`Self::new`], with the place of each group's gradients. Without places, gradients are f32 and have
    /// the layout of the parameters.
    pub fn with_places(list: Vec<Group>, places: Vec<GradientPlace>) -> Self {
        Self { list, places, table: Mutex::default() }
    }
}

impl Deref for KeptGroups {
    type Target = [Group];

    fn deref(&self) -> &[Group] {
        &self.list
    }
}

/// The groups of one update, created with `into()`. From a slice instead of [`KeptGroups`], the table on the
/// GPU is made for this one update.
#[derive(Debug, Clone, Copy)]
pub struct Groups<'a> {
    pub(super) list: &'a [Group],
    /// The place of each group's gradients; empty if gradients have the layout of the parameters.
    pub(super) places: &'a [GradientPlace],
    table: Option<&'a Mutex<Option<Table>>>,
}

impl<'a> From<&'a KeptGroups> for Groups<'a> {
    fn from(groups: &'a KeptGroups) -> Self {
        Self { list: &groups.list, places: &groups.places, table: Some(&groups.table) }
    }
}

impl<'a> From<&'a [Group]> for Groups<'a> {
    fn from(list: &'a [Group]) -> Self {
        Self { list, places: &[], table: None }
    }
}

impl<'a> From<&'a Vec<Group>> for Groups<'a> {
    fn from(list: &'a Vec<Group>) -> Self {
        list.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [Group; N]> for Groups<'a> {
    fn from(list: &'a [Group; N]) -> Self {
        list.as_slice().into()
    }
}

/// The hyper-parameters of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyper {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment, after the root is taken.
    pub eps: f64,
    /// The number `t` of this update, counted from 1.
    pub step: u64,
    /// True if the moments are corrected for their initial value of zero.
    pub bias_correction: bool,
    /// Factor by which every gradient is multiplied first.
    pub gradient_multiplier: f32,
}

impl Hyper {
    /// The divisor of a moment for bias correction, `1 - beta^t`; 1 without bias correction.
    pub fn correction(&self, beta: f64) -> f64 {
        let exponent = self.step.min(i32::MAX as u64) as i32;
        if self.bias_correction { 1.0 - beta.powi(exponent) } else { 1.0 }
    }
}

/// The flat buffers, each `[N]`, with `S` state tensors; all are f32 except the shadow and the gradients that
/// products wrote in bf16. They must not share memory: an update would deadlock on the lock of the shared
/// storage.
#[derive(Debug, Clone, Copy)]
pub struct Buffers<'a, const S: usize = 2> {
    /// The parameters, `p`.
    pub parameters: &'a Tensor,
    /// The gradients, `g`, f32: `[N]`, or those of the groups whose [`GradientPlace`] is in this buffer.
    pub gradients: &'a Tensor,
    /// The gradients of the groups whose [`GradientPlace`] is in this bf16 buffer. The arithmetic is f32.
    pub half_gradients: Option<&'a Tensor>,
    /// The state of the update rule: for Adam's relatives the first moment `m` and the second moment `v`.
    pub state: [&'a Tensor; S],
    /// The bf16 or f16 copy of the parameters, which matrix products read; `None` if products are computed in
    /// f32. Every parameter that changes is rounded into it.
    pub shadow: Option<&'a Tensor>,
    /// Clipping by the norm of the gradients; `None` for no clipping.
    pub clip: Option<Clip<'a>>,
}

/// Clipping by a norm that is read on the device, so that the host does not wait for it.
#[derive(Debug, Clone, Copy)]
pub struct Clip<'a> {
    /// Norm of the gradients before they are multiplied by `gradient_multiplier`, f64 `[1]`. If it is not
    /// finite, the update changes nothing.
    pub norm: &'a Tensor,
    /// Largest norm of the gradients after that multiplication; 0 for no limit.
    pub max_norm: f64,
}

impl Clip<'_> {
    /// The total factor of the gradients, including the clipping, if their norm is `norm`; `None` if `norm`
    /// is not finite.
    pub(super) fn multiplier(max_norm: f64, norm: f64, gradient_multiplier: f32) -> Option<f32> {
        let multiplier = f64::from(gradient_multiplier);
        // PyTorch's clip_grad_norm_ adds 1e-6 to the norm.
        let clip = if max_norm > 0.0 { (max_norm / (norm * multiplier + 1e-6)).min(1.0) } else { 1.0 };
        norm.is_finite().then_some((clip * multiplier) as f32)
    }
}

impl<const S: usize> Buffers<'_, S> {
    /// Returns an error that names `op` unless all buffers have equal lengths, the groups are in ascending
    /// order, within the buffers and do not overlap, and `step` is at least 1.
    pub(super) fn check(&self, op: &str, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
        let count = self.parameters.dims1()?;
        self.check_gradients(op, groups, count)?;
        for (number, t) in (1..).zip(self.state) {
            check_shape(&format!("{op}: state tensor {number}"), t, &[count])?;
        }
        if let Some(shadow) = self.shadow {
            check_shape(&format!("{op}: shadow"), shadow, &[count])?;
        }
        let mut end = 0;
        for Group { range, .. } in groups.list {
            if range.start < end || range.end < range.start || range.end > count {
                bail!("{op}: group {range:?} does not follow {end} within the {count} parameters");
            }
            end = range.end;
        }
        if let Some(clip) = self.clip {
            check_shape(&format!("{op}: norm"), clip.norm, &[1])?;
        }
        if hyper.step == 0 {
            bail!("{op}: steps count from 1");
        }
        Ok(())
    }

    /// Returns an error unless the gradients of all groups are within their buffers.
    fn check_gradients(&self, op: &str, groups: Groups<'_>, count: usize) -> Result<()> {
        let places = groups.places.len();
        let wanted = if self.half_gradients.is_some() { groups.list.len() } else { 0 };
        if places != wanted {
            bail!("{op}: the gradients of the groups have {places} places, not {wanted}");
        }
        let Some(half) = self.half_gradients else {
            return check_shape(&format!("{op}: gradients"), self.gradients, &[count]);
        };
        let half = half.dims1()?;
        let single = self.gradients.dims1()?;
        for (group, place) in groups.list.iter().zip(groups.places) {
            let len = if place.is_half { half } else { single };
            if place.start + group.range.len() > len {
                bail!("{op}: the gradients of group {:?} at {place:?} are not within {len}", group.range);
            }
        }
        Ok(())
    }
}
