//! The state tensors of one update rule in one process: their memory, the update, and their division among
//! processes.
//!
//! A state tensor has the values of the rule's parameters one after the other, without those of other rules.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};

use crate::layers::gradient_places::packed;
use crate::layers::{GradientPlaces, Layout};
use crate::optim::rule::{Rule, RuleBuffers};
use crate::optim::shards;
use ops::update::{Group, Hyper, KeptGroups};

/// A rule with this process's part of its state.
#[derive(Debug)]
pub(super) struct RuleState {
    rule: Box<dyn Rule>,
    /// A tensor for each name of [`Rule::state`].
    tensors: Vec<Tensor>,
    /// The part of the state of each process.
    parts: Vec<Range<usize>>,
    /// Index of this process's part.
    own: usize,
    stretches: Vec<Stretch>,
}

/// A range of the buffers that is updated in one call.
#[derive(Debug)]
struct Stretch {
    /// Elements of this process's part of the flat buffers.
    range: Range<usize>,
    /// Elements of this process's part of the state.
    state: Range<usize>,
    /// Groups, relative to `range`.
    groups: KeptGroups,
    /// The shape of the tensor of each group, if the rule needs whole tensors.
    shapes: Vec<Vec<usize>>,
}

impl RuleState {
    /// The state of a rule that updates `groups` within the ranges `runs` of the flat buffers, all zeros.
    /// `parts` are the parts of the flat buffers of all processes; this process has number `own`.
    pub(super) fn new(
        rule: Box<dyn Rule>,
        runs: &[Range<usize>],
        groups: &[Group],
        layout: &Layout,
        parts: &[Range<usize>],
        own: usize,
        device: &Device,
    ) -> Result<Self> {
        let part = &parts[own];
        let parts = parts.iter().map(|part| packed(part.start, runs)..packed(part.end, runs));
        let parts: Vec<Range<usize>> = parts.collect();
        let mut stretches = Vec::new();
        for run in runs {
            let range = run.start.max(part.start)..run.end.min(part.end);
            if range.is_empty() {
                continue;
            }
            let start = packed(range.start, runs) - parts[own].start;
            let groups = shards::within(groups, &range);
            let starts = groups.iter().filter(|_| rule.needs_whole_tensors());
            let shapes = starts.map(|group| shape_at(range.start + group.range.start, layout)).collect();
            stretches.push(Stretch {
                state: start..start + range.len(),
                groups: KeptGroups::new(groups),
                shapes,
                range: range.start - part.start..range.end - part.start,
            });
        }
        // The CUDA driver refuses a request for no bytes.
        let device = if parts[own].is_empty() { &Device::Cpu } else { device };
        let names = rule.state().iter();
        let tensors = names.map(|_| Tensor::zeros(parts[own].len(), DType::F32, device));
        let tensors = tensors.collect::<Result<_>>()?;
        Ok(Self { rule, tensors, parts, own, stretches })
    }

    /// The same rule in a process that updates all parameters and whose gradients are at these places.
    pub(super) fn reading(mut self, places: &GradientPlaces) -> Self {
        for Stretch { range, groups, .. } in &mut self.stretches {
            let starts = groups.iter().map(|group| places.place_of(range.start + group.range.start));
            *groups = KeptGroups::with_places(groups.to_vec(), starts.collect());
        }
        self
    }

    /// Updates this process's part of the parameters; `buffers` are the parts of the flat buffers, and have
    /// no state.
    pub(super) fn update(&self, buffers: &RuleBuffers<'_>, hyper: &Hyper) -> Result<()> {
        for Stretch { range, state, groups, shapes } in &self.stretches {
            let shadow = buffers.shadow.map(|shadow| part(shadow, range)).transpose()?;
            let state = self.tensors.iter().map(|tensor| part(tensor, state));
            // Groups that read two buffers have a place in them; the others have that of their parameters.
            let gradients = match buffers.half_gradients {
                None => part(buffers.gradients, range)?,
                Some(_) => buffers.gradients.clone(),
            };
            let stretch = RuleBuffers {
                parameters: &part(buffers.parameters, range)?,
                gradients: &gradients,
                half_gradients: buffers.half_gradients,
                state: &state.collect::<Result<Vec<_>>>()?,
                shadow: shadow.as_ref(),
                clip: buffers.clip,
                shapes,
            };
            self.rule.update(&stretch, groups, hyper)?;
        }
        Ok(())
    }

    /// This process's part of each state tensor, with its name.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        self.rule.state().iter().copied().zip(&self.tensors)
    }

    /// The part of each process, of every state tensor.
    pub(super) fn parts(&self) -> &[Range<usize>] {
        &self.parts
    }

    /// Number of values of a state tensor in all processes together.
    pub(super) fn len(&self) -> usize {
        self.parts.last().map_or(0, |last| last.end)
    }

    /// This process's part of whole state tensors, on the device of the state.
    pub(super) fn own_parts(&self, whole: &[&Tensor]) -> Result<Vec<Tensor>> {
        let range = &self.parts[self.own];
        let parts = self.tensors.iter().zip(whole).map(|(current, whole)| {
            // A part is a copy: a view would keep the rest in memory.
            let is_all = range.len() == whole.elem_count();
            let own = if is_all { (*whole).clone() } else { part(whole, range)?.copy()? };
            own.to_device(current.device())
        });
        parts.collect()
    }

    /// Replaces this process's part of the state.
    pub(super) fn replace(&mut self, tensors: Vec<Tensor>) {
        self.tensors = tensors;
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.stretches.iter().flat_map(|stretch| stretch.groups.iter())
    }
}

fn part(whole: &Tensor, range: &Range<usize>) -> Result<Tensor> {
    whole.narrow(0, range.start, range.len())
}

/// The shape of the tensor that begins with this element of the flat buffer.
fn shape_at(start: usize, layout: &Layout) -> Vec<usize> {
    let spec = layout.specs().find(|spec| spec.range.start == start);
    spec.expect("a group of a rule that needs whole tensors is a tensor").shape.clone()
}
