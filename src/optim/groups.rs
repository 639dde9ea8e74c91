//! The groups of the optimizers: which weight decay and which share of the learning rate each parameter has.

use crate::config::TrainingConfig;
use crate::layers::Layout;
use crate::layers::Part;
use crate::layers::parameters::ParameterSpec;
use crate::ops::update::Group;

/// The groups of `AdamW`: the whole buffer in as few as can be, the alignment gaps within a run of like
/// neighbours included: they are zero and stay so.
pub(super) fn by_neighbours(layout: &Layout, config: &TrainingConfig) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for group in by_tensor(layout, config) {
        let factors = |group: &Group| (group.weight_decay.to_bits(), group.lr_scale.to_bits());
        match groups.last_mut() {
            Some(last) if factors(last) == factors(&group) => last.range.end = group.range.end,
            _ => groups.push(group),
        }
    }
    groups
}

/// The groups of LAMB: one for each tensor, because each has its own trust ratio. Biases and `LayerNorm` do
/// not decay, so theirs is 1.
pub(super) fn by_tensor(layout: &Layout, config: &TrainingConfig) -> Vec<Group> {
    let decay = config.weight_decay as f32;
    let layers = |model: u8| {
        let of_model = layout.specs().filter(|spec| spec.model == model);
        of_model
            .filter_map(|spec| if let Part::Layer(layer) = spec.part { Some(layer + 1) } else { None })
            .max()
    };
    let group = |spec: &ParameterSpec| Group {
        range: spec.range.clone(),
        weight_decay: if spec.decays { decay } else { 0.0 },
        lr_scale: lr_scale(config.layerwise_lr_decay, spec.part, layers(spec.model).unwrap_or(0)),
    };
    layout.specs().map(group).collect()
}

/// `decay^depth`, counted from the head (0) over the last layer (2) down to the embeddings, as
/// `_get_layer_lrs` of ELECTRA's `model/optimization.py` counts.
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
    use super::*;

    #[test]
    fn rates_decay_from_the_head_to_the_embeddings() {
        let scales =
            [Part::Head, Part::Layer(2), Part::Layer(0), Part::Embeddings].map(|part| lr_scale(0.5, part, 3));
        assert_eq!(scales.map(f32::to_bits), [1.0, 0.25, 0.0625, 0.03125].map(f32::to_bits));
        assert_eq!(lr_scale(1.0, Part::Embeddings, 12).to_bits(), 1f32.to_bits());
    }
}
