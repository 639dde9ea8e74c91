//! The section `evaluation`: measurements of a model during pretraining in addition to its own losses.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Probes: scores of the current weights on tasks. They change no number of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// A file of tasks, as `compare --tasks` takes it: the model is fine-tuned on each, and its score is
    /// logged as `eval/<name of the task>`.
    #[schemars(extend("x-path" = true))]
    pub probes: Option<PathBuf>,
    /// Files of minimal pairs: the share of pairs whose right sentence the model finds likelier is logged as
    /// `eval/<name of the file>`.
    #[schemars(extend("x-path" = true))]
    pub minimal_pairs: Vec<PathBuf>,
    /// Steps between two probes, the first before training; 0 means with each evaluation. The last one is at
    /// the end.
    pub probe_steps: u64,
    /// Usual range of the training loss with these very settings and data; the log says if the loss is
    /// outside of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_band: Option<LossBand>,
}

/// The training loss of some runs that differ in their seeds, with a margin. `scripts/loss_band.py` writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossBand {
    /// Hash of settings and data: runs with another hash are not compared with it.
    pub of: String,
    /// Points in the order of their steps; between two of them the range changes along a straight line.
    pub points: Vec<BandPoint>,
}

/// Usual range of the loss at one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BandPoint {
    /// Steps done.
    pub step: u64,
    /// The lowest loss that is usual.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl LossBand {
    /// Returns the lowest and the highest usual loss after `step` steps; `None` before the first and after
    /// the last point.
    pub fn at(&self, step: u64) -> Option<(f64, f64)> {
        let after = self.points.iter().position(|point| point.step >= step)?;
        let next = self.points[after];
        if next.step == step {
            return Some((next.low, next.high));
        }
        let before = self.points[after.checked_sub(1)?];
        let share = (step - before.step) as f64 / (next.step - before.step).max(1) as f64;
        Some((between(before.low, next.low, share), between(before.high, next.high, share)))
    }
}

fn between(from: f64, to: f64, share: f64) -> f64 {
    from + share * (to - from)
}

impl EvaluationConfig {
    /// Returns true if there are tasks or minimal pairs to probe.
    pub fn has_probes(&self) -> bool {
        self.probes.is_some() || !self.minimal_pairs.is_empty()
    }
}
