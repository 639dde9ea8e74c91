//! The measurements of training at one step; the sinks decide where they are written.

use serde_json::{Map, Value};

use crate::telemetry::json_number;

/// The measurements of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Updates done.
    pub step: u64,
    /// Passes over the training data, with a fraction.
    pub epoch: f64,
    /// Tags and values. Tags are those of the Hugging Face Trainer (`train/loss`, `train/learning_rate`,
    /// `train/grad_norm`, `train/epoch`, `eval/loss`, ...); mlmtrain's own start with `perf/` or `cost/`.
    pub values: Vec<(String, f64)>,
}

impl Record {
    /// Returns an object with `step`, `epoch` and every tag.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("step".to_string(), self.step.into());
        object.insert("epoch".to_string(), json_number(self.epoch));
        object.extend(self.values.iter().map(|(tag, value)| (tag.clone(), json_number(*value))));
        object
    }
}
