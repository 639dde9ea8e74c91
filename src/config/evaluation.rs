//! What is measured of a model while it is pretrained, beside its own losses.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Probes: what the weights of the moment are worth on tasks. They change no number of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Where the training loss of runs with these very settings and data lay: outside of it the log says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_band: Option<LossBand>,
}

/// The training loss of some runs that differ in their seeds, with a margin. `scripts/loss_band.py` writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossBand {
    /// Stands for settings and data: a run with others is not held against it.
    pub of: String,
    /// By step, in order; between two of them it is a straight line.
    pub points: Vec<BandPoint>,
}

/// Where the loss lay at one step.
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
    /// The lowest and the highest usual loss after `step` steps; `None` before the first point and behind the
    /// last.
    pub fn at(&self, step: u64) -> Option<(f64, f64)> {
        let after = self.points.iter().position(|point| point.step >= step)?;
        let next = self.points[after];
        if next.step == step {
            return Some((next.low, next.high));
        }
        let before = self.points[after.checked_sub(1)?];
        let share = (step - before.step) as f64 / (next.step - before.step).max(1) as f64;
        let between = |from: f64, to: f64| from + share * (to - from);
        Some((between(before.low, next.low), between(before.high, next.high)))
    }
}

impl EvaluationConfig {
    /// Whether there is anything to probe.
    pub fn has_probes(&self) -> bool {
        self.probes.is_some() || !self.minimal_pairs.is_empty()
    }
}
