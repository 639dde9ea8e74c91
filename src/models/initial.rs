//! How the weights of a family's model begin.

use crate::families::Initialisation;
use crate::families::ModelConfig;
use crate::layers::Init;

/// What a weight is for, as far as its first values depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A table, or a first map of a block.
    Input,
    /// The last map of a block, or the first one of a head.
    Output,
    /// The map of a classifier to its labels.
    Labels,
}

/// How a weight begins, as [`Initialisation`] says.
pub(super) fn init(config: &ModelConfig, role: Role) -> Init {
    let shape = &config.encoder;
    match (config.family.initialisation, role) {
        (Initialisation::Normal, _) => Init::Normal,
        (Initialisation::TruncatedByDepth, Role::Input) => Init::Truncated(shape.initializer_range),
        (Initialisation::TruncatedByDepth, Role::Output) => {
            Init::Truncated(shape.initializer_range / (2.0 * shape.num_hidden_layers as f64).sqrt())
        }
        (Initialisation::TruncatedByDepth, Role::Labels) => {
            Init::Truncated((shape.hidden_size as f64).powf(-0.5))
        }
    }
}

/// How a table begins of which row `padding` is that of a padding token.
pub(super) fn table(config: &ModelConfig, padding: Option<u32>) -> Init {
    match (init(config, Role::Input), padding) {
        (Init::Normal, Some(row)) => Init::NormalWithZeroRow(row),
        (init, _) => init,
    }
}
