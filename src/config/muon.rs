//! The table `training.muon`: the hyper-parameters of Muon, with the names of `torch.optim.Muon`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Factor of the learning rate of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdjustLrFn {
    /// `sqrt(max(1, rows / columns))`: Jordan's, PyTorch's default; wants learning rates of about 0.02.
    Original,
    /// `0.2 * sqrt(max(rows, columns))`: updates are as large as those of `adamw`, whose learning rate and
    /// weight decay hold.
    MatchRmsAdamw,
    /// `sqrt(rows / columns)`.
    SpectralUnclamped,
}

/// The hyper-parameters of Muon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MuonConfig {
    /// Decay of the momentum.
    #[schemars(range(min = 0.0), example = 0.95, extend("exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Nesterov's momentum: the gradient counts once more.
    pub nesterov: bool,
    /// Steps of Newton and Schulz that make a momentum orthogonal.
    #[schemars(range(min = 1, max = 99))]
    pub ns_steps: usize,
    /// Factor of the learning rate of a matrix.
    pub adjust_lr_fn: AdjustLrFn,
}

impl Default for MuonConfig {
    fn default() -> Self {
        Self { momentum: 0.95, nesterov: true, ns_steps: 5, adjust_lr_fn: AdjustLrFn::MatchRmsAdamw }
    }
}
