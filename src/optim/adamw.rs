//! `AdamW` over the flat buffers: its moments, its groups, and one update.
//!
//! The arithmetic is the op's (`ops/adamw`); this file owns the state and says which elements decay.

use candle_core::Result;
use candle_core::Tensor;

use crate::config::TrainingConfig;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::ops::adamw;
use crate::ops::adamw::Buffers;
use crate::ops::adamw::Group;
use crate::ops::adamw::Hyper;

/// Moments in the layout of the parameters, and the number of updates done.
#[derive(Debug)]
pub struct AdamW {
    first_moment: Tensor,
    second_moment: Tensor,
    groups: Vec<Group>,
    beta1: f64,
    beta2: f64,
    eps: f64,
    updates: u64,
}

impl AdamW {
    /// Zero moments; decay for all parameters but biases and `LayerNorm`.
    pub fn new(parameters: &Parameters, config: &TrainingConfig) -> Result<Self> {
        Ok(Self {
            first_moment: parameters.flat().zeros_like()?,
            second_moment: parameters.flat().zeros_like()?,
            groups: groups(parameters, config.weight_decay as f32),
            beta1: config.adam_beta1,
            beta2: config.adam_beta2,
            eps: config.adam_epsilon,
            updates: 0,
        })
    }

    /// One update with the gradients times `gradient_multiplier` (mean and clipping in one); clears the gradients.
    pub fn update(&mut self, parameters: &Parameters, gradients: &Gradients, lr: f64, gradient_multiplier: f64) -> Result<()> {
        self.updates += 1;
        let hyper = Hyper {
            lr,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            step: self.updates,
            gradient_multiplier: gradient_multiplier as f32,
            clear_gradients: true,
        };
        let buffers = Buffers {
            parameters: parameters.flat(),
            gradients: gradients.flat(),
            first_moment: &self.first_moment,
            second_moment: &self.second_moment,
        };
        adamw::update(buffers, &self.groups, &hyper)
    }

    /// The state by name: `exp_avg` and `exp_avg_sq`, flat, in the order of the parameters' names.
    pub fn snapshot(&self) -> Vec<(String, Tensor)> {
        vec![("exp_avg".into(), self.first_moment.clone()), ("exp_avg_sq".into(), self.second_moment.clone())]
    }

    /// Takes a snapshot back; `updates` is the step counter that belongs to it.
    pub fn restore(&mut self, first_moment: &Tensor, second_moment: &Tensor, updates: u64) -> Result<()> {
        for (name, target, source) in [("exp_avg", &self.first_moment, first_moment), ("exp_avg_sq", &self.second_moment, second_moment)] {
            if target.dims() != source.dims() {
                candle_core::bail!("tensor `{name}` is {:?}, the model wants {:?}", source.dims(), target.dims());
            }
        }
        self.first_moment = first_moment.to_device(self.first_moment.device())?;
        self.second_moment = second_moment.to_device(self.second_moment.device())?;
        self.updates = updates;
        Ok(())
    }
}

/// Runs of neighbouring parameters with the same decay, over the whole buffer, alignment gaps included.
fn groups(parameters: &Parameters, weight_decay: f32) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for spec in parameters.layout().specs() {
        let decay = if spec.decays { weight_decay } else { 0.0 };
        match groups.last_mut() {
            Some(last) if last.weight_decay.to_bits() == decay.to_bits() => last.range.end = spec.range.end,
            _ => groups.push(Group { range: spec.range.clone(), weight_decay: decay }),
        }
    }
    groups
}
