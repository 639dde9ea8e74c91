//! The interface of a probe: an additional measurement of a model during training. It does not change the
//! run.

use std::path::Path;

use anyhow::Result;

use crate::tasks::run::Scores;

/// Measures the current weights, from a model folder written for this purpose.
pub trait Probe: Sync {
    /// The names of its scores.
    fn names(&self) -> &[String];

    /// Steps between two measurements; 0 means with each evaluation.
    fn every(&self) -> u64;

    /// Returns the scores of the model in a folder, as far as they could be measured; `None` if a signal
    /// interrupted the probe.
    fn scores(&self, model: &Path) -> Result<Option<Scores>>;
}
