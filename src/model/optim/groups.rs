//! Parameter groups of the optimizers: the weight decay and the learning rate scale of each parameter. Frozen
//! parameters are in no group.

use crate::layers::{GradientPlaces, Layout, Part};
use crate::optim::rule::{Assignment, rule_of};
use config::{FrozenLayers, TrainingConfig};
use ops::update::Group;

/// The lowest part of an encoder that is not frozen.
pub fn first_trained(config: &TrainingConfig) -> Part {
    match config.frozen_layers {
        FrozenLayers::Layers(0) => Part::Embeddings,
        FrozenLayers::Layers(layers) => Part::Layer(layers),
        FrozenLayers::Embeddings => Part::Layer(0),
    }
}

/// The groups of each rule.
pub(super) fn of_rules(
    layout: &Layout,
    config: &TrainingConfig,
    rules: &[Assignment],
    places: Option<&GradientPlaces>,
) -> Vec<Vec<Group>> {
    let are_half: Vec<bool> = layout
        .specs()
        .map(|spec| places.is_some_and(|places| places.place_of(spec.range.start).is_half))
        .collect();
    let groups = rules.iter().enumerate().map(|(index, assignment)| {
        let of_tensors = of_tensors(layout, config, rules, index);
        if assignment.rule.needs_whole_tensors() {
            of_tensors.into_iter().flatten().collect()
        } else {
            joined(of_tensors, &are_half)
        }
    });
    groups.collect()
}

/// As few groups as possible. A group of neighbouring tensors with the same settings includes the alignment
/// gaps between them, which are zero and stay zero. `are_half` is true for tensors whose gradients are bf16.
fn joined(of_tensors: Vec<Option<Group>>, are_half: &[bool]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut follows = false;
    let mut was_half = false;
    for (group, &is_half) in of_tensors.into_iter().zip(are_half) {
        let is_updated = group.is_some();
        follows &= was_half == is_half;
        was_half = is_half;
        match (groups.last_mut(), group) {
            (_, None) => {}
            (Some(last), Some(group)) if follows && settings(last) == settings(&group) => {
                last.range.end = group.range.end;
            }
            (_, Some(group)) => groups.push(group),
        }
        follows = is_updated;
    }
    groups
}

/// Weight decay and learning rate scale of a group, as bits.
fn settings(group: &Group) -> (u32, u32) {
    (group.weight_decay.to_bits(), group.lr_scale.to_bits())
}

/// A group for each tensor, in the order of the buffer; `None` for a tensor that is frozen or that a rule
/// other than number `rule` updates.
fn of_tensors(
    layout: &Layout,
    config: &TrainingConfig,
    rules: &[Assignment],
    rule: usize,
) -> Vec<Option<Group>> {
    let decay = config.weight_decay as f32;
    let head = config.head_learning_rate.map(|rate| (rate / config.learning_rate) as f32);
    let groups = layout.specs().map(|spec| {
        let share = lr_scale(config.layerwise_lr_decay, spec.part, num_layers(layout, spec.model));
        let is_updated = spec.part >= first_trained(config) && rule_of(spec, rules) == rule;
        is_updated.then(|| Group {
            range: spec.range.clone(),
            weight_decay: if spec.decays { decay } else { 0.0 },
            lr_scale: head.filter(|_| spec.part == Part::Head).unwrap_or(share),
        })
    });
    groups.collect()
}

fn num_layers(layout: &Layout, model: u8) -> usize {
    let of_model = layout.specs().filter(|spec| spec.model == model);
    let layers =
        of_model.filter_map(|spec| if let Part::Layer(layer) = spec.part { Some(layer + 1) } else { None });
    layers.max().unwrap_or(0)
}

/// `decay^depth`, where the depth is counted from the head (0) over the last layer (2) down to the
/// embeddings, as in `_get_layer_lrs` of ELECTRA's `model/optimization.py`.
fn lr_scale(decay: f64, part: Part, layers: usize) -> f32 {
    let depth = match part {
        Part::Head => 0,
        Part::Layer(layer) => layers + 1 - layer,
        Part::Embeddings => layers + 2,
    };
    decay.powi(depth as i32) as f32
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::layers::{Init, Registry};
    use crate::optim::rule::assignments;

    /// Ranges and learning rate scales of the groups, in a model of three layers with one tensor each.
    fn groups(config: &TrainingConfig) -> Vec<(Range<usize>, f32)> {
        let mut registry = Registry::default();
        for (name, part) in [
            ("layer.1", Part::Layer(1)),
            ("layer.0", Part::Layer(0)),
            ("classifier", Part::Head),
            ("embeddings", Part::Embeddings),
            ("layer.2", Part::Layer(2)),
        ] {
            registry.enter(part);
            registry.weight(name, &[64], Init::Normal);
        }
        let groups = of_rules(&registry.layout(), config, &assignments(config), None).concat();
        groups.into_iter().map(|group| (group.range, group.lr_scale)).collect()
    }

    #[test]
    fn frozen_parameters_are_in_no_group_and_no_group_spans_them() {
        // classifier, embeddings, layer.0, layer.1, layer.2: in the order of their names.
        for (frozen_layers, expected) in [
            (FrozenLayers::Layers(0), vec![(0..320, 1.0)]),
            (FrozenLayers::Embeddings, vec![(0..64, 1.0), (128..320, 1.0)]),
            (FrozenLayers::Layers(2), vec![(0..64, 1.0), (256..320, 1.0)]),
            (FrozenLayers::Layers(3), vec![(0..64, 1.0)]),
        ] {
            let config = TrainingConfig { frozen_layers, ..TrainingConfig::default() };
            assert_eq!(groups(&config), expected);
        }
    }

    #[test]
    fn the_head_can_have_a_learning_rate_of_its_own() {
        let config = TrainingConfig {
            learning_rate: 1e-4,
            head_learning_rate: Some(1e-3),
            layerwise_lr_decay: 0.5,
            frozen_layers: FrozenLayers::Layers(1),
            ..TrainingConfig::default()
        };
        assert_eq!(groups(&config), [(0..64, 10.0), (192..256, 0.125), (256..320, 0.25)]);
    }

    #[test]
    fn rates_decay_from_the_head_to_the_embeddings() {
        let scales =
            [Part::Head, Part::Layer(2), Part::Layer(0), Part::Embeddings].map(|part| lr_scale(0.5, part, 3));
        assert_eq!(scales.map(f32::to_bits), [1.0, 0.25, 0.0625, 0.03125].map(f32::to_bits));
        assert_eq!(lr_scale(1.0, Part::Embeddings, 12).to_bits(), 1f32.to_bits());
    }
}
