//! Thresholds for the probabilities of labels, tuned on the evaluation set and stored in the model's folder.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::tasks::sequence::LabelSet;
use base::error::Problem;
use base::fs;
use base::scores::{DEFAULT_THRESHOLD, best_threshold};

/// The file in the folder of a model: a JSON object with the threshold of each label.
pub const THRESHOLDS: &str = "thresholds.json";

/// Largest file that is read: a hundred thousand labels with long names.
const CAP_BYTES: u64 = 16 << 20;

/// The threshold of each label.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// The thresholds in the order of the labels' ids.
    pub values: Vec<f64>,
    /// True if the thresholds were tuned on examples.
    pub are_tuned: bool,
}

impl Thresholds {
    /// The threshold 0.5 for each of `labels` labels.
    pub fn default_of(labels: usize) -> Self {
        Self { values: vec![DEFAULT_THRESHOLD; labels], are_tuned: false }
    }

    /// Finds the threshold with the highest F1 for each label, on examples with these label sets and
    /// probabilities.
    pub fn tuned(labels: usize, gold: &[Vec<u32>], probabilities: &[Vec<f32>]) -> Self {
        let mut values = Vec::with_capacity(labels);
        for label in 0..labels {
            let rows = gold.iter().zip(probabilities);
            values.push(best_threshold(
                rows.map(|(ids, row)| (row[label], ids.binary_search(&(label as u32)).is_ok())),
            ));
        }
        Self { values, are_tuned: true }
    }

    /// Reads the thresholds of the model in `folder`, which has these labels; 0.5 for each if there is no
    /// such file. A file with other labels is an error.
    pub fn load(folder: &Path, labels: &[String]) -> Result<Self> {
        let path = folder.join(THRESHOLDS);
        if !fs::exists(&path) {
            return Ok(Self::default_of(labels.len()));
        }
        let found: BTreeMap<String, f64> = serde_json::from_slice(&fs::read_capped(&path, CAP_BYTES)?)
            .map_err(|e| wrong_file(&path, format!("is not a JSON object of labels and numbers: {e}")))?;
        if let Some(other) = found.keys().find(|name| !labels.contains(name)) {
            return Err(wrong_file(&path, format!("`{other}` is no label of the model")).into());
        }
        let mut values = Vec::with_capacity(labels.len());
        for label in labels {
            let Some(value) = found.get(label) else {
                return Err(wrong_file(&path, format!("has no threshold of the label `{label}`")).into());
            };
            if !(0.0..=1.0).contains(value) {
                let message = format!("the threshold of `{label}` is {value}, it must be from 0 to 1");
                return Err(wrong_file(&path, message).into());
            }
            values.push(*value);
        }
        Ok(Self { values, are_tuned: true })
    }

    /// Returns the name and the content of the file for a model with these labels.
    pub fn file(&self, labels: &LabelSet) -> (String, Vec<u8>) {
        let table = Value::from(labels.by_label(&self.values));
        (THRESHOLDS.to_string(), format!("{table:#}\n").into_bytes())
    }

    /// Describes the thresholds in a line.
    pub fn description(&self) -> String {
        if !self.are_tuned {
            return format!("labels of a probability above 0.5, there is no `{THRESHOLDS}` beside the model");
        }
        let low = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("labels of a probability above their thresholds in `{THRESHOLDS}`, {low:.3} to {high:.3}")
    }
}

fn wrong_file(path: &Path, message: String) -> Problem {
    Problem::new(message).at(path.display()).hint("without the file every label has the threshold 0.5")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<String> {
        ["b", "a"].map(str::to_string).into()
    }

    #[test]
    fn thresholds_are_read_back_by_the_names_of_labels() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Thresholds::load(folder.path(), &labels()).unwrap(), Thresholds::default_of(2));
        let probabilities = [vec![0.3, 0.1], vec![0.2, 0.7]];
        let tuned = Thresholds::tuned(2, &[vec![0], vec![0, 1]], &probabilities);
        assert_eq!(tuned.values, [f64::from(0.2f32) / 2.0, 0.5]);
        let (name, bytes) = tuned.file(&LabelSet::of_model(&labels()));
        std::fs::write(folder.path().join(name), bytes).unwrap();
        assert_eq!(Thresholds::load(folder.path(), &labels()).unwrap(), tuned);
    }

    #[test]
    fn a_file_of_another_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (text, words) in [
            ("{\"b\": 0.5}", "has no threshold of the label `a`"),
            ("{\"b\": 0.5, \"a\": 0.5, \"c\": 0.5}", "`c` is no label of the model"),
            ("{\"b\": 0.5, \"a\": 1.5}", "the threshold of `a` is 1.5, it must be from 0 to 1"),
            ("[0.5, 0.5]", "is not a JSON object of labels and numbers"),
        ] {
            std::fs::write(folder.path().join(THRESHOLDS), text).unwrap();
            let error = Thresholds::load(folder.path(), &labels()).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(THRESHOLDS), "{error}");
        }
    }
}
