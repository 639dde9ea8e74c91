//! Phases of a run: settings of its first steps that differ from those of the later ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sources::{SourceConfig, WEIGHT_MAX};
use base::families::ROPE_THETA;

/// Objective of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PhaseObjective {
    /// Masked tokens, from the tokens on both sides.
    #[default]
    MaskedLm,
    /// Each token, from the tokens before it.
    Causal,
}

/// Another objective, other rows, another learning rate, other positions or other data for the first steps of
/// a run, such as short rows before long ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainingPhase {
    /// The last step of the phase, counted from the beginning of the run. After the last phase
    /// `data.max_seq_length`, `training`, the model's angles and the sources' own weights hold.
    pub until_step: u64,
    /// Longest sequence in tokens, special tokens included; at most `data.max_seq_length`.
    pub max_seq_length: usize,
    /// The objective. Phases that are `causal` come first and have no evaluations during
    /// training, which are of masked tokens; `mlm_probability_end` is approached from their end on.
    #[serde(default)]
    pub objective: PhaseObjective,
    /// Rows a device takes at once; as in `training` when absent.
    #[schemars(range(min = 1))]
    #[serde(default)]
    pub per_device_train_batch_size: Option<usize>,
    /// Micro-batches of one update; as in `training` when absent.
    #[schemars(range(min = 1, max = 1 << 20))]
    #[serde(default)]
    pub gradient_accumulation_steps: Option<usize>,
    /// Peak learning rate, which the schedule multiplies; as in `training` when absent.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// RoPE base of ModernBERT's layers that attend to all tokens; as in `model` when absent.
    #[schemars(range(min = *ROPE_THETA.start(), max = *ROPE_THETA.end()))]
    #[serde(default)]
    pub global_rope_theta: Option<f64>,
    /// Sources that come more or less often than in `data.sources`; those that are not named keep their
    /// `weight`.
    #[serde(default)]
    pub sources: Vec<SourceWeight>,
}

/// How often a source comes in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceWeight {
    /// The source's name.
    pub name: String,
    /// How often an epoch of the phase takes each of its documents; 0 leaves it out.
    #[schemars(range(min = 0.0, max = WEIGHT_MAX), example = 1)]
    pub weight: f64,
}

impl TrainingPhase {
    /// Returns a phase that changes the length of rows only.
    pub fn of_length(until_step: u64, max_seq_length: usize) -> Self {
        Self {
            until_step,
            max_seq_length,
            objective: PhaseObjective::MaskedLm,
            per_device_train_batch_size: None,
            gradient_accumulation_steps: None,
            learning_rate: None,
            global_rope_theta: None,
            sources: Vec::new(),
        }
    }

    /// Returns the weight of each of `sources` in this phase.
    pub fn weights(&self, sources: &[SourceConfig]) -> Vec<f64> {
        sources
            .iter()
            .map(|source| {
                let name = source.display_name();
                self.sources.iter().find(|own| own.name == name).map_or(source.weight, |own| own.weight)
            })
            .collect()
    }
}

/// Returns the value for the step after `steps_done`, from the changes that `TrainingConfig::changes`
/// returns.
pub fn value_at<T>(changes: &[(u64, T)], steps_done: u64) -> &T {
    let next = changes.partition_point(|(from, _)| *from <= steps_done);
    &changes[next.saturating_sub(1)].1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, weight: f64) -> SourceConfig {
        SourceConfig { weight, ..SourceConfig::of_files(vec![format!("{name}.txt")]) }
    }

    #[test]
    fn a_phase_changes_the_weights_that_it_names() {
        let sources = [source("web", 1.0), source("news", 0.5)];
        let mut phase = TrainingPhase::of_length(10, 64);
        assert_eq!(phase.weights(&sources), [1.0, 0.5]);
        phase.sources = vec![SourceWeight { name: "web".to_string(), weight: 0.0 }];
        assert_eq!(phase.weights(&sources), [0.0, 0.5]);
    }
}
