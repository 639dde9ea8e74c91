//! What the probability of a label has to be above: found on the evaluation set, kept beside the model.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Map;
use serde_json::Value;

use crate::error::Problem;
use crate::fs;
use crate::scores::DEFAULT_THRESHOLD;
use crate::scores::best_threshold;

/// The file beside a model: a JSON object of each label and its threshold.
pub const THRESHOLDS: &str = "thresholds.json";

/// A hundred thousand labels with long names.
const CAP_BYTES: u64 = 16 << 20;

/// The threshold of each label.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// In the order of the labels' ids.
    pub values: Vec<f64>,
    /// Whether they were found on examples.
    pub are_tuned: bool,
}

impl Thresholds {
    /// A half for each of so many labels.
    pub fn default_of(labels: usize) -> Self {
        Self { values: vec![DEFAULT_THRESHOLD; labels], are_tuned: false }
    }

    /// Those of the highest F1 of each of so many labels, on examples with these sets of labels and these
    /// probabilities.
    pub fn tuned(labels: usize, gold: &[Vec<u32>], probabilities: &[Vec<f32>]) -> Self {
        let of = |label: usize| {
            let has = |ids: &Vec<u32>| ids.binary_search(&(label as u32)).is_ok();
            best_threshold(gold.iter().zip(probabilities).map(|(ids, row)| (row[label], has(ids))))
        };
        Self { values: (0..labels).map(of).collect(), are_tuned: true }
    }

    /// The thresholds beside the model in `folder`, whose labels are these; a half for each where there is no
    /// such file. A file of other labels is an error.
    pub fn beside(folder: &Path, labels: &[String]) -> Result<Self> {
        let path = folder.join(THRESHOLDS);
        if !fs::exists(&path) {
            return Ok(Self::default_of(labels.len()));
        }
        let refuse = |message: String| {
            let hint = "without the file every label has the threshold 0.5";
            Problem::new(message).at(path.display()).hint(hint)
        };
        let found: BTreeMap<String, f64> = serde_json::from_slice(&fs::read_capped(&path, CAP_BYTES)?)
            .map_err(|e| refuse(format!("is not a JSON object of labels and numbers: {e}")))?;
        if let Some(other) = found.keys().find(|name| !labels.contains(name)) {
            return Err(refuse(format!("`{other}` is no label of the model")).into());
        }
        let of = |label: &String| match found.get(label) {
            None => Err(refuse(format!("has no threshold of the label `{label}`"))),
            Some(value) if !(0.0..=1.0).contains(value) => {
                Err(refuse(format!("the threshold of `{label}` is {value}, it must be from 0 to 1")))
            }
            Some(value) => Ok(*value),
        };
        Ok(Self { values: labels.iter().map(of).collect::<Result<_, Problem>>()?, are_tuned: true })
    }

    /// The file beside a model with these labels.
    pub fn file(&self, labels: &[String]) -> (String, Vec<u8>) {
        let table: Map<String, Value> =
            labels.iter().cloned().zip(self.values.iter().map(|value| Value::from(*value))).collect();
        (THRESHOLDS.to_string(), format!("{:#}\n", Value::from(table)).into_bytes())
    }

    /// One line of what they are.
    pub fn told(&self) -> String {
        if !self.are_tuned {
            return format!("labels of a probability above 0.5, there is no `{THRESHOLDS}` beside the model");
        }
        let low = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("labels of a probability above their thresholds in `{THRESHOLDS}`, {low:.3} to {high:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<String> {
        ["b", "a"].map(str::to_string).into()
    }

    #[test]
    fn they_are_read_back_by_the_names_of_labels() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Thresholds::beside(folder.path(), &labels()).unwrap(), Thresholds::default_of(2));
        let probabilities = [vec![0.3, 0.1], vec![0.2, 0.7]];
        let tuned = Thresholds::tuned(2, &[vec![0], vec![0, 1]], &probabilities);
        assert_eq!(tuned.values, [f64::from(0.2f32) / 2.0, 0.5]);
        let (name, bytes) = tuned.file(&labels());
        std::fs::write(folder.path().join(name), bytes).unwrap();
        assert_eq!(Thresholds::beside(folder.path(), &labels()).unwrap(), tuned);
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
            let error = Thresholds::beside(folder.path(), &labels()).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(THRESHOLDS), "{error}");
        }
    }
}
