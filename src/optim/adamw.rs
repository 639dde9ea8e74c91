//! The groups of `AdamW`: runs of neighbouring parameters with the same decay. The arithmetic is the op's
//! (`ops/adamw`).

use crate::layers::parameters::Layout;
use crate::ops::update::Group;

/// The whole buffer in as few groups as can be, the alignment gaps within a run included: they are zero and
/// stay so.
pub(super) fn groups(layout: &Layout, weight_decay: f32) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for spec in layout.specs() {
        let decay = if spec.decays { weight_decay } else { 0.0 };
        match groups.last_mut() {
            Some(last) if last.weight_decay.to_bits() == decay.to_bits() => last.range.end = spec.range.end,
            _ => groups.push(Group { range: spec.range.clone(), weight_decay: decay }),
        }
    }
    groups
}
