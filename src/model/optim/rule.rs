//! Update rules: what each of them has to say about itself, and which parameters it updates.
//!
//! A configuration is a list of patterns with a rule each. The first pattern that matches a parameter
//! decides. Memory, checkpoints and the division among processes follow from [`Rule`], so that a new rule is
//! its op, an implementation below, a line in [`assignments`] and a value of [`OptimizerType`].

use std::fmt;
use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use crate::layers::{Layout, ParameterSpec, Part};
use config::{AdjustLrFn, MuonConfig, OptimizerType, TrainingConfig};
use ops::update::{Buffers, Clip, Hyper, KeptGroups};
use ops::{adamw, lamb, lion, muon, stable_adamw};

/// An update rule.
pub(super) trait Rule: fmt::Debug + Send + Sync {
    /// Names of its state tensors in a checkpoint. Each has a value for each element that the rule updates.
    fn state(&self) -> &'static [&'static str];

    /// True if the update of an element depends on its whole tensor: each tensor is a group, and no process
    /// updates a part of one.
    fn needs_whole_tensors(&self) -> bool;

    /// Updates all elements of the groups.
    fn update(&self, buffers: &RuleBuffers<'_>, groups: &KeptGroups, hyper: &Hyper) -> Result<()>;

    /// Bytes that the update of a tensor of this shape takes in addition to the buffers, while matrix
    /// products are computed in `compute`.
    fn temporary_bytes(&self, _shape: &[usize], _compute: DType) -> u64 {
        0
    }

    /// Floating-point operations of the matrix products of the update of a tensor.
    fn flops(&self, _shape: &[usize]) -> f64 {
        0.0
    }
}

/// The same range of all buffers. The state has a tensor for each name of [`Rule::state`].
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleBuffers<'a> {
    pub(super) parameters: &'a Tensor,
    pub(super) gradients: &'a Tensor,
    /// Gradients in bf16; the groups then have places in both buffers, which are whole.
    pub(super) half_gradients: Option<&'a Tensor>,
    pub(super) state: &'a [Tensor],
    pub(super) shadow: Option<&'a Tensor>,
    pub(super) clip: Clip<'a>,
    /// The shape of the tensor of each group, if the rule needs whole tensors.
    pub(super) shapes: &'a [Vec<usize>],
}

impl<'a> RuleBuffers<'a> {
    /// The buffers of an op with `S` state tensors.
    fn of_op<const S: usize>(&self) -> Buffers<'a, S> {
        Buffers {
            parameters: self.parameters,
            gradients: self.gradients,
            half_gradients: self.half_gradients,
            state: std::array::from_fn(|number| &self.state[number]),
            shadow: self.shadow,
            clip: Some(self.clip),
        }
    }
}

/// Names of the moments of Adam and its relatives, those of `torch.optim`.
const MOMENTS: &[&str] = &["exp_avg", "exp_avg_sq"];

/// `AdamW`.
#[derive(Debug)]
struct AdamW;

impl Rule for AdamW {
    fn state(&self) -> &'static [&'static str] {
        MOMENTS
    }

    fn needs_whole_tensors(&self) -> bool {
        false
    }

    fn update(&self, buffers: &RuleBuffers<'_>, groups: &KeptGroups, hyper: &Hyper) -> Result<()> {
        adamw::update(buffers.of_op(), groups, hyper)
    }
}

/// LAMB.
#[derive(Debug)]
struct Lamb;

impl Rule for Lamb {
    fn state(&self) -> &'static [&'static str] {
        MOMENTS
    }

    fn needs_whole_tensors(&self) -> bool {
        true
    }

    fn update(&self, buffers: &RuleBuffers<'_>, groups: &KeptGroups, hyper: &Hyper) -> Result<()> {
        lamb::update(buffers.of_op(), groups, hyper)
    }
}

/// Lion.
#[derive(Debug)]
struct Lion;

impl Rule for Lion {
    fn state(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }

    fn needs_whole_tensors(&self) -> bool {
        false
    }

    fn update(&self, buffers: &RuleBuffers<'_>, groups: &KeptGroups, hyper: &Hyper) -> Result<()> {
        lion::update(buffers.of_op(), groups, hyper)
    }
}

/// `StableAdamW`.
#[derive(Debug)]
struct StableAdamW;

impl Rule for StableAdamW {
    fn state(&self) -> &'static [&'static str] {
        MOMENTS
    }

    fn needs_whole_tensors(&self) -> bool {
        true
    }

    fn update(&self, buffers: &RuleBuffers<'_>, groups: &KeptGroups, hyper: &Hyper) -> Result<()> {
        stable_adamw::update(buffers.of_op(), groups, hyper)
    }
}

/// Muon.
#[derive(Debug)]
struct Muon(muon::Settings);

impl Muon {
    fn new(config: &MuonConfig) -> Self {
        let &MuonConfig { momentum, nesterov, ns_steps, adjust_lr_fn } = config;
        let adjust_lr = match adjust_lr_fn {
            AdjustLrFn::Original => muon::AdjustLr::Original,
            AdjustLrFn::MatchRmsAdamw => muon::AdjustLr::MatchRmsAdamw,
            AdjustLrFn::SpectralUnclamped => muon::AdjustLr::SpectralUnclamped,
        };
        Self(muon::Settings { momentum, nesterov, ns_steps, adjust_lr })
    }
}

/// The sides of a matrix.
fn matrix(shape: &[usize]) -> [usize; 2] {
    shape.try_into().expect("only matrices are assigned to this rule")
}

impl Rule for Muon {
    fn state(&self) -> &'static [&'static str] {
        &["momentum_buffer"]
    }

    fn needs_whole_tensors(&self) -> bool {
        true
    }

    fn update(&self, buffers: &RuleBuffers<'_>, groups: &KeptGroups, hyper: &Hyper) -> Result<()> {
        let shapes: Vec<[usize; 2]> = buffers.shapes.iter().map(|shape| matrix(shape)).collect();
        muon::update(buffers.of_op(), groups, &shapes, hyper, &self.0)
    }

    fn temporary_bytes(&self, shape: &[usize], compute: DType) -> u64 {
        muon::temporary_bytes(matrix(shape), compute)
    }

    fn flops(&self, shape: &[usize]) -> f64 {
        muon::flops(matrix(shape), self.0.ns_steps)
    }
}

/// Selects parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// The matrices of the layers, by their Hugging Face names: ModernBERT's `Wqkv` is one matrix.
    HiddenMatrices,
    /// All parameters.
    All,
}

impl Pattern {
    fn matches(self, spec: &ParameterSpec) -> bool {
        match self {
            Self::HiddenMatrices => matches!(spec.part, Part::Layer(_)) && spec.shape.len() == 2,
            Self::All => true,
        }
    }
}

/// A rule, and the parameters that it updates unless an earlier rule of the list does.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) pattern: Pattern,
    pub(super) rule: Box<dyn Rule>,
}

impl Assignment {
    fn new(pattern: Pattern, rule: impl Rule + 'static) -> Self {
        Self { pattern, rule: Box::new(rule) }
    }
}

/// The rules of a configuration; the last one takes all parameters that are left.
pub(super) fn assignments(config: &TrainingConfig) -> Vec<Assignment> {
    match config.optim {
        OptimizerType::Adamw => vec![Assignment::new(Pattern::All, AdamW)],
        OptimizerType::Lamb => vec![Assignment::new(Pattern::All, Lamb)],
        OptimizerType::Lion => vec![Assignment::new(Pattern::All, Lion)],
        OptimizerType::StableAdamw => vec![Assignment::new(Pattern::All, StableAdamW)],
        OptimizerType::Muon => vec![
            Assignment::new(Pattern::HiddenMatrices, Muon::new(&config.muon)),
            Assignment::new(Pattern::All, AdamW),
        ],
    }
}

/// Index of the rule that updates a parameter.
pub(super) fn rule_of(spec: &ParameterSpec, assignments: &[Assignment]) -> usize {
    let index = assignments.iter().position(|assignment| assignment.pattern.matches(spec));
    index.expect("the last rule takes all parameters")
}

/// For each rule, the ranges of the flat buffer that it updates, with the gaps that follow their tensors. The
/// ranges of all rules together cover the buffer.
pub(super) fn runs(layout: &Layout, assignments: &[Assignment]) -> Vec<Vec<Range<usize>>> {
    let mut runs: Vec<Vec<Range<usize>>> = assignments.iter().map(|_| Vec::new()).collect();
    let ends = layout.specs().skip(1).map(|next| next.range.start).chain([layout.len()]);
    for (spec, end) in layout.specs().zip(ends) {
        let runs = &mut runs[rule_of(spec, assignments)];
        match runs.last_mut().filter(|run| run.end == spec.range.start) {
            Some(run) => run.end = end,
            None => runs.push(spec.range.start..end),
        }
    }
    runs
}

/// Number of f32 values in the state of the optimizer, of all processes together, without those of gaps.
pub fn state_values(layout: &Layout, config: &TrainingConfig) -> u64 {
    let assignments = assignments(config);
    let values = layout.specs().map(|spec| {
        let rule = &assignments[rule_of(spec, &assignments)].rule;
        spec.range.len() * rule.state().len()
    });
    values.sum::<usize>() as u64
}

/// Bytes that an update takes in addition to the buffers, while products are computed in `compute`.
pub fn temporary_bytes(layout: &Layout, config: &TrainingConfig, compute: DType) -> u64 {
    let assignments = assignments(config);
    let bytes = layout
        .specs()
        .map(|spec| assignments[rule_of(spec, &assignments)].rule.temporary_bytes(&spec.shape, compute));
    bytes.max().unwrap_or(0)
}

/// Floating-point operations of the matrix products of an update.
pub fn update_flops(layout: &Layout, config: &TrainingConfig) -> f64 {
    let assignments = assignments(config);
    layout.specs().map(|spec| assignments[rule_of(spec, &assignments)].rule.flops(&spec.shape)).sum()
}

/// Names of the state tensors of each rule of an optimizer.
pub fn state_names(optim: OptimizerType) -> Vec<&'static [&'static str]> {
    let config = TrainingConfig { optim, ..TrainingConfig::default() };
    assignments(&config).iter().map(|assignment| assignment.rule.state()).collect()
}

/// Bytes of a checkpoint: the parameters, their average if they are averaged, and the state of the optimizer.
pub fn checkpoint_bytes(layout: &Layout, config: &TrainingConfig) -> u64 {
    let weights = 1 + u64::from(config.weight_average.is_some());
    4 * (weights * layout.num_elements() as u64 + state_values(layout, config))
}
