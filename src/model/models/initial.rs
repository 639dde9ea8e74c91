//! Initial values of the weights of a family's model.

use crate::layers::Init;
use base::families::{Initialisation, ModelConfig};

/// The role of a weight, as far as its initial values depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A table, or the first map of a block.
    Input,
    /// The last map of a block, or the first map of a head.
    Output,
    /// The map of a classifier to its labels.
    Labels,
}

/// The initial values of a weight, as [`Initialisation`] defines them.
pub(super) fn init(config: &ModelConfig, role: Role) -> Init {
    let shape = &config.encoder;
    match (config.family.initialisation, role) {
        (Initialisation::Normal, _) => Init::Normal,
        (Initialisation::Uniform, _) => Init::Uniform(shape.initializer_range),
        (Initialisation::TruncatedByDepth, Role::Input) => Init::Truncated(shape.initializer_range),
        (Initialisation::TruncatedByDepth, Role::Output) => {
            Init::Truncated(shape.initializer_range / (2.0 * shape.num_hidden_layers as f64).sqrt())
        }
        (Initialisation::TruncatedByDepth, Role::Labels) => {
            Init::Truncated((shape.hidden_size as f64).powf(-0.5))
        }
    }
}

/// The initial values of a table in which row `padding` is that of the padding token.
pub(super) fn table(config: &ModelConfig, padding: Option<u32>) -> Init {
    match (init(config, Role::Input), padding) {
        (Init::Normal, Some(row)) => Init::NormalWithZeroRow(row),
        (init, _) => init,
    }
}
