//! The section `decay_from`: the checkpoint from which a run continues with a learning rate that only decays.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The checkpoint from which a run continues with a learning rate that falls to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecayFrom {
    /// A checkpoint of a run, from the stable part of its schedule; or a model folder of somebody else, which
    /// has weights only.
    #[schemars(extend("x-path" = true))]
    pub checkpoint: PathBuf,
    /// SHA-256 of its `manifest.json`, or of a model folder. The run writes it down; where it is given,
    /// another one is refused.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Steps of the checkpoint; the run writes it down.
    #[serde(default)]
    pub step: Option<u64>,
    /// The learning rate that the checkpoint had; the run writes it down.
    #[serde(default)]
    pub initial_learning_rate: Option<f64>,
}

impl DecayFrom {
    /// Returns the section for a checkpoint that was not read yet.
    pub fn new(checkpoint: PathBuf) -> Self {
        Self { checkpoint, sha256: None, step: None, initial_learning_rate: None }
    }
}
