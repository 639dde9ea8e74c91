//! Writes and reads `trainer_state.json` with the keys of the Hugging Face Trainer
//! (`transformers.TrainerState`, 5.23), so that tools made for that file work.
//!
//! Training does not depend on this file: the trainer saves its own state elsewhere. A resumed run only
//! continues the `log_history`.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::telemetry::json_number;
use crate::telemetry::record::Record;
use base::error::Problem;

/// The whole file; names and order of the fields are those of the Hugging Face Trainer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Step of the best evaluation.
    pub best_global_step: Option<u64>,
    /// Score of the best evaluation.
    pub best_metric: Option<f64>,
    /// Folder of the best checkpoint.
    pub best_model_checkpoint: Option<String>,
    /// Passes over the training data, with a fraction.
    pub epoch: f64,
    /// Steps between two evaluations.
    pub eval_steps: u64,
    /// Updates done.
    pub global_step: u64,
    is_hyper_param_search: bool,
    is_local_process_zero: bool,
    is_world_process_zero: bool,
    /// Every log record: `loss`, `grad_norm`, `learning_rate` or `eval_*`, with `epoch` and `step`.
    pub log_history: Vec<Map<String, Value>>,
    /// Steps between two log records.
    pub logging_steps: u64,
    /// Total number of updates.
    pub max_steps: u64,
    /// Number of tokens that training has read.
    pub num_input_tokens_seen: u64,
    /// Total number of passes over the training data, rounded up.
    pub num_train_epochs: u64,
    /// Steps between two checkpoints.
    pub save_steps: u64,
    stateful_callbacks: Map<String, Value>,
    /// Floating-point operations so far.
    pub total_flos: f64,
    /// Rows per device and micro-batch.
    pub train_batch_size: Option<u64>,
    trial_name: Option<String>,
    trial_params: Option<Map<String, Value>>,
}

impl TrainerState {
    /// Returns the state of a run that has not started.
    pub fn new() -> Self {
        Self { is_local_process_zero: true, is_world_process_zero: true, ..Self::default() }
    }

    /// Reads a state that [`TrainerState::to_json`] wrote.
    pub fn from_json(value: Value) -> Result<Self> {
        serde_json::from_value(value)
            .map_err(|e| Problem::new(format!("is not a trainer state: {e}")).at("trainer_state.json").into())
    }

    /// Returns the contents of the file.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("numbers and strings always have a JSON form")
    }

    /// Adds a record to `log_history`: `train/x` becomes `x`, `eval/x` becomes `eval_x`, and mlmtrain's own
    /// tags are left out.
    pub fn observe(&mut self, record: &Record) {
        self.global_step = record.step;
        self.epoch = record.epoch;
        for (start, replacement) in [("train/", ""), ("eval/", "eval_")] {
            let mut entry: Map<String, Value> = record
                .values
                .iter()
                .filter_map(|(tag, value)| {
                    Some((format!("{replacement}{}", tag.strip_prefix(start)?), json_number(*value)))
                })
                .collect();
            if !entry.is_empty() {
                entry.insert("epoch".to_string(), json_number(record.epoch));
                entry.insert("step".to_string(), record.step.into());
                self.log_history.push(entry);
            }
        }
    }

    /// Removes the records after `step`, because those steps will be computed again.
    pub fn rewind(&mut self, step: u64) {
        self.log_history
            .retain(|entry| entry.get("step").and_then(Value::as_u64).is_some_and(|found| found <= step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_become_the_log_history_of_the_trainer() {
        let mut state = TrainerState::new();
        state.observe(&Record {
            step: 10,
            epoch: 0.5,
            values: values(&[("train/loss", 2.5), ("perf/mfu", 0.4), ("eval/loss", 2.25)]),
        });
        state.observe(&Record { step: 20, epoch: 1.0, values: values(&[("train/loss", f64::NAN)]) });
        assert_eq!(
            serde_json::to_value(&state.log_history).unwrap(),
            json!([
                { "loss": 2.5, "epoch": 0.5, "step": 10 },
                { "eval_loss": 2.25, "epoch": 0.5, "step": 10 },
                { "loss": null, "epoch": 1.0, "step": 20 },
            ])
        );
        assert_eq!(TrainerState::from_json(state.to_json()).unwrap(), state);
        state.rewind(10);
        assert_eq!(state.log_history.len(), 2);
        let mut short = state.to_json();
        short.as_object_mut().unwrap().remove("max_steps");
        assert!(TrainerState::from_json(short).unwrap_err().to_string().contains("`max_steps`"));
    }

    fn values(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
        pairs.iter().map(|(tag, value)| ((*tag).to_string(), *value)).collect()
    }

    // The expected keys are the fields of the dataclass `transformers.TrainerState` 5.23.0, sorted like
    // `save_to_json` sorts them.
    #[test]
    fn the_keys_are_those_of_transformers() {
        let keys = "best_global_step best_metric best_model_checkpoint epoch eval_steps global_step is_hyper_param_search is_local_process_zero \
                    is_world_process_zero log_history logging_steps max_steps num_input_tokens_seen num_train_epochs save_steps stateful_callbacks \
                    total_flos train_batch_size trial_name trial_params";
        let Value::Object(state) = TrainerState::new().to_json() else { panic!("an object") };
        assert_eq!(
            state.keys().map(String::as_str).collect::<Vec<_>>(),
            keys.split_whitespace().collect::<Vec<_>>()
        );
    }
}
