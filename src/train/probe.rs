//! What else is measured of a model now and then while it is trained. It leaves the run as it is.

use std::path::Path;

use anyhow::Result;

use crate::tasks::run::Scores;

/// Measures the weights of the moment, from a model folder of their own.
pub trait Probe: Sync {
    /// The names of its scores.
    fn names(&self) -> &[String];

    /// Steps between two measurements; 0 means with each evaluation.
    fn every(&self) -> u64;

    /// The scores of the model in a folder, those that could be had; `None` when a signal came in.
    fn scores(&self, model: &Path) -> Result<Option<Scores>>;
}
