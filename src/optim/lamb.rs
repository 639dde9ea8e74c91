//! The groups of LAMB: one for each tensor, because each has its own trust ratio. The arithmetic is the op's
//! (`ops/lamb`).

use crate::layers::parameters::Layout;
use crate::ops::update::Group;

/// One group a parameter; biases and `LayerNorm` do not decay, so their trust ratio is 1.
pub(super) fn groups(layout: &Layout, weight_decay: f32) -> Vec<Group> {
    let group = |range, decays: bool| Group { range, weight_decay: if decays { weight_decay } else { 0.0 } };
    layout.specs().map(|spec| group(spec.range.clone(), spec.decays)).collect()
}
