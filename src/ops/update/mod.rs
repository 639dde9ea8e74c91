//! What the optimizers share: the flat buffers, the ranges that have their own decay, and the numbers of one
//! update.
//!
//! It knows no rule: those are `adamw` and `lamb`.

pub(super) mod cpu;
pub(super) mod cuda;

use std::ops::Deref;
use std::ops::Range;
use std::sync::Mutex;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::tensor::check_shape;
use cuda::Table;

/// A range of the flat buffer with its own weight decay and share of the learning rate; for LAMB, one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Elements of the flat buffers.
    pub range: Range<usize>,
    /// Weight decay, per unit of learning rate.
    pub weight_decay: f32,
    /// What the learning rate is multiplied by.
    pub lr_scale: f32,
}

/// The groups of an optimizer, which stay as they are, and the table that a GPU reads of them, uploaded with
/// the first update.
#[derive(Debug)]
pub struct KeptGroups {
    list: Vec<Group>,
    table: Mutex<Option<Table>>,
}

impl KeptGroups {
    /// Groups in ascending order, apart.
    pub fn new(list: Vec<Group>) -> Self {
        Self { list, table: Mutex::default() }
    }
}

impl Deref for KeptGroups {
    type Target = [Group];

    fn deref(&self) -> &[Group] {
        &self.list
    }
}

/// Groups as an update takes them. Made by `into()`; from a slice alone, a GPU's table is made for one
/// update.
#[derive(Debug, Clone, Copy)]
pub struct Groups<'a> {
    pub(super) list: &'a [Group],
    table: Option<&'a Mutex<Option<Table>>>,
}

impl<'a> From<&'a KeptGroups> for Groups<'a> {
    fn from(groups: &'a KeptGroups) -> Self {
        Self { list: &groups.list, table: Some(&groups.table) }
    }
}

impl<'a> From<&'a [Group]> for Groups<'a> {
    fn from(list: &'a [Group]) -> Self {
        Self { list, table: None }
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
    /// Whether the moments are corrected for their beginning at zero.
    pub bias_correction: bool,
    /// Every gradient is multiplied by this first.
    pub gradient_multiplier: f32,
}

impl Hyper {
    /// `1 - beta^t`, what a moment is divided by; 1 without correction.
    pub fn correction(&self, beta: f64) -> f64 {
        let exponent = self.step.min(i32::MAX as u64) as i32;
        if self.bias_correction { 1.0 - beta.powi(exponent) } else { 1.0 }
    }
}

/// The flat buffers, each `[N]` and f32 but for the shadow. They must not share memory: an update would wait
/// on its own lock.
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
    /// The copy of the parameters that products are computed in, bf16 or f16; none where they are computed
    /// in f32. Every parameter that changes is rounded into it.
    pub shadow: Option<&'a Tensor>,
    /// Clipping by the norm of the gradients; none applies them as they are.
    pub clip: Option<Clip<'a>>,
}

/// Clipping: read on the device, so that nothing waits for the norm.
#[derive(Debug, Clone, Copy)]
pub struct Clip<'a> {
    /// Norm of the gradients before they are multiplied, f64 `[1]`. Where it is not finite nothing is
    /// updated.
    pub norm: &'a Tensor,
    /// Largest norm after they are multiplied; 0 for no limit.
    pub max_norm: f64,
}

impl Clip<'_> {
    /// What gradients are multiplied by when their norm is `norm`; `None` where that is not finite.
    pub(super) fn multiplier(max_norm: f64, norm: f64, gradient_multiplier: f32) -> Option<f32> {
        let multiplier = f64::from(gradient_multiplier);
        // PyTorch's clip_grad_norm_ adds 1e-6 to the norm.
        let clip = if max_norm > 0.0 { (max_norm / (norm * multiplier + 1e-6)).min(1.0) } else { 1.0 };
        norm.is_finite().then_some((clip * multiplier) as f32)
    }
}

impl Buffers<'_> {
    /// An error, naming `op`, unless all buffers have one length, the groups are in ascending order, apart,
    /// and within it, and the update has a number.
    pub(super) fn check(&self, op: &str, groups: &[Group], hyper: &Hyper) -> Result<()> {
        let count = self.parameters.dims1()?;
        for (what, t) in [
            ("gradients", self.gradients),
            ("first moment", self.first_moment),
            ("second moment", self.second_moment),
        ] {
            check_shape(&format!("{op}: {what}"), t, &[count])?;
        }
        if let Some(shadow) = self.shadow {
            check_shape(&format!("{op}: shadow"), shadow, &[count])?;
        }
        let mut end = 0;
        for Group { range, .. } in groups {
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
}
