//! The record of a finished cell: a file `cell.json` in its folder, with configuration, scores and outcomes.
//! Once it is written the cell is complete, and its weights may be removed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::tasks::run::Inputs;
use crate::train::run_folder::FINAL;
use base::error::{Problem, Problems};
use base::fs;
use base::scores::Outcomes;
use config::FinetuneConfig;
use model::checkpoint::CheckpointStore;

/// File name of the record in the folder of its cell.
const RECORD: &str = "cell.json";

/// Largest record that is read, in bytes: enough for the predictions of ten million examples.
const CAP_BYTES: u64 = 1 << 30;

/// A finished cell. It contains no times, so that a cell that was interrupted leaves the same bytes as one
/// that was not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The configuration that the cell was trained with.
    pub config: FinetuneConfig,
    /// Hash of each input, such as the model and the training file, by the key that names it.
    pub inputs: Inputs,
    /// Finite scores by the names of transformers' Trainer (`eval_accuracy`, ...); empty if training
    /// diverged.
    pub scores: BTreeMap<String, f64>,
    /// The outcome of each evaluation example; absent if training diverged.
    pub outcomes: Option<Outcomes>,
    /// The outcome of each test example; absent without test examples and if training diverged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_outcomes: Option<Outcomes>,
}

impl Record {
    /// Reads the record of the cell in `folder`, if it has one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        if !exists(folder) {
            return Ok(None);
        }
        let path = folder.join(RECORD);
        let record = serde_json::from_slice(&fs::read_capped(&path, CAP_BYTES)?).map_err(|e| {
            Problem::new(format!("is no record of a cell: {e}"))
                .at(path.display())
                .hint("remove the file to train this cell again")
        })?;
        Ok(Some(record))
    }

    /// Describes the one answer that the model of this cell gives to all examples, if it does so.
    pub(super) fn uniform_answers(&self) -> Option<String> {
        // With tuned thresholds, the model may give different labels all the same.
        let is_tuned = self.scores.get("eval_f1_micro_tuned").is_some_and(|&score| score > 0.0);
        self.outcomes.as_ref()?.uniform_answers().filter(|_| !is_tuned)
    }

    /// Writes the record into the folder of its cell.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let mut json = serde_json::to_value(self)?;
        json["config"] = config::saved(&self.config);
        fs::write_bytes(&folder.join(RECORD), format!("{json}\n").as_bytes())
    }

    /// Refuses a record whose configuration or inputs differ from those of the cell: a table would mix them
    /// unnoticed.
    pub(super) fn agree(&self, folder: &Path, config: &FinetuneConfig, inputs: &Inputs) -> Result<()> {
        let place = folder.join(RECORD).display().to_string();
        let hint = "restore it, or choose another output folder";
        let differences = config::diff(&self.config, config).into_iter();
        let changed = differences.filter(|change| !change.keeps_numbers()).map(|change| {
            Problem::usage(format!("`{}` was {} and is {} now", change.path, change.old, change.new))
        });
        let changed_inputs = inputs.iter().filter(|(key, hash)| self.inputs.get(*key) != Some(*hash));
        let changed_inputs = changed_inputs.map(|(key, _)| {
            Problem::usage(format!("the content of `{key}` is not what it was when this cell was trained"))
        });
        // With other settings, other examples may be read of the same files.
        let mut found: Vec<Problem> = changed.collect();
        if found.is_empty() {
            found = changed_inputs.collect();
        }
        let problems: Vec<Problem> = found.into_iter().map(|problem| problem.at(&place).hint(hint)).collect();
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
    }
}

/// True if the cell in `folder` is complete.
pub fn exists(folder: &Path) -> bool {
    fs::exists(&folder.join(RECORD))
}

/// Removes the record of the cell in `folder`, so that the cell is trained again.
pub(super) fn forget(folder: &Path) -> Result<()> {
    fs::remove_file(&folder.join(RECORD))
}

/// Removes the final model and the checkpoints of a cell that has its record.
pub(super) fn remove_weights(folder: &Path) -> Result<()> {
    fs::remove_folder(&folder.join(FINAL))?;
    let store = CheckpointStore::new(folder);
    store.steps()?.into_iter().try_for_each(|step| fs::remove_folder(&store.path_of(step)))
}
