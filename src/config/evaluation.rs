//! What is measured of a model while it is pretrained, beside its own losses.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Probes: what the weights of the moment are worth on tasks. They change no number of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// A file of tasks, as `compare --tasks` takes it: the model is fine-tuned on each, and its score is
    /// logged as `eval/<name of the task>`.
    pub probes: Option<PathBuf>,
    /// Files of minimal pairs: the share of pairs whose right sentence the model finds likelier is logged as
    /// `eval/<name of the file>`.
    pub minimal_pairs: Vec<PathBuf>,
    /// Steps between two probes, the first before training; 0 means with each evaluation. The last one is at
    /// the end.
    pub probe_steps: u64,
}

impl EvaluationConfig {
    /// Whether there is anything to probe.
    pub fn has_probes(&self) -> bool {
        self.probes.is_some() || !self.minimal_pairs.is_empty()
    }
}
