//! Output of a classifier with several labels per text: rows of predictions as JSONL, scores, and a table of
//! the scores of each label.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::pages::columns::shortened;
use crate::scores::{ClassScore, DEFAULT_THRESHOLD, LabelTally, above};
use crate::tasks::labelled::Example;
use crate::tasks::multi_label::thresholds::Thresholds;
use crate::tasks::table::{aligned, percent_number};

/// Most characters of a label in the table of scores.
const LABEL_CHARS: usize = 40;

/// Names of the scores of label sets in an evaluation.
pub const SCORES: [&str; 4] = ["f1_micro", "f1_macro", "f1_samples", "exact_match"];

/// Suffix of the name of a score at tuned thresholds.
pub const TUNED: &str = "_tuned";

/// One line of a predictions file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictionRow {
    /// The (first) text.
    pub text: String,
    /// The second text of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_pair: Option<String>,
    /// The labels whose probabilities are above their thresholds, most probable first; may be empty.
    pub labels: Vec<String>,
    /// The labels in the file, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gold: Option<Vec<String>>,
    /// The probabilities of `labels`.
    pub scores: Vec<f32>,
    /// The probability of each label, in the order of their ids.
    pub probabilities: Map<String, Value>,
}

impl PredictionRow {
    /// Makes the row of a text from the probabilities of its labels. `gold` is `None` for a text without
    /// known labels.
    pub fn new(
        text: String,
        text_pair: Option<String>,
        gold: Option<Vec<String>>,
        labels: &[String],
        probabilities: &[f32],
        thresholds: &Thresholds,
    ) -> Self {
        let mut found = above(probabilities, &thresholds.values);
        found.sort_by(|a, b| probabilities[*b as usize].total_cmp(&probabilities[*a as usize]));
        Self {
            text,
            text_pair,
            labels: found.iter().map(|id| labels[*id as usize].clone()).collect(),
            gold,
            scores: found.iter().map(|id| probabilities[*id as usize]).collect(),
            probabilities: labels
                .iter()
                .cloned()
                .zip(probabilities.iter().map(|p| Value::from(*p)))
                .collect(),
        }
    }

    /// Makes the row of an example of a labelled file.
    pub fn of_example(
        example: &Example,
        labels: &[String],
        probabilities: &[f32],
        thresholds: &Thresholds,
    ) -> Self {
        let Example { text, text_pair, labels: gold, .. } = example.clone();
        Self::new(text, text_pair, Some(gold), labels, probabilities, thresholds)
    }

    /// Formats the row as a line of JSON, including the newline.
    pub fn line(&self) -> Result<String> {
        Ok(serde_json::to_string(self).context("cannot write a prediction as JSON")? + "\n")
    }
}

/// Counts the labels that are above these thresholds, and those of them that are right.
pub fn tally(gold: &[Vec<u32>], probabilities: &[Vec<f32>], thresholds: &Thresholds) -> LabelTally {
    let mut tally = LabelTally::new(thresholds.values.len());
    for (gold, row) in gold.iter().zip(probabilities) {
        tally.add(gold, &above(row, &thresholds.values));
    }
    tally
}

/// Computes the scores named in [`SCORES`].
pub fn scores(tally: &LabelTally) -> [(&'static str, f64); 4] {
    let values = [tally.f1_micro(), tally.f1_macro(), tally.f1_samples(), tally.exact_match()];
    std::array::from_fn(|at| (SCORES[at], values[at]))
}

/// Predicts label sets at the threshold 0.5, so that models can be compared.
pub fn untuned(probabilities: &[Vec<f32>], labels: usize) -> Vec<Vec<u32>> {
    probabilities.iter().map(|row| above(row, &vec![DEFAULT_THRESHOLD; labels])).collect()
}

/// Formats a table of threshold, precision, recall, F1 and support of each label. Ends in a newline.
pub fn label_table(tally: &LabelTally, labels: &[String], thresholds: &Thresholds) -> String {
    let header = ["label", "threshold", "precision %", "recall %", "F1 %", "examples"].map(str::to_string);
    let mut rows = vec![header.to_vec()];
    for ((label, score), threshold) in labels.iter().zip(tally.per_label()).zip(&thresholds.values) {
        let ClassScore { precision, recall, f1, support } = score;
        let shares = [precision, recall, f1].map(percent_number);
        let first = [shortened(label, LABEL_CHARS), format!("{threshold:.3}")];
        rows.push([&first[..], &shares, &[support.to_string()]].concat());
    }
    aligned(&rows).expect("the label is shortened and the numbers are narrow")
}

/// Most bytes of a probability in a row of predictions, including the punctuation around it and its label.
const PROBABILITY_BYTES: u64 = 30;

/// Estimates the bytes of the lines of these examples in a predictions file. A label appears at most three
/// times in a line: as predicted, as gold, and with its probability.
pub fn rows_bytes(examples: &[Example], labels: &[String]) -> u64 {
    let label_bytes: u64 = labels.iter().map(|label| 3 * label.len() as u64 + 2 * PROBABILITY_BYTES).sum();
    let texts = examples.iter().map(|e| e.text.len() + e.text_pair.as_ref().map_or(0, String::len));
    texts.sum::<usize>() as u64 + examples.len() as u64 * (label_bytes + 150)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<String> {
        ["sea", "garden", "crime"].map(str::to_string).into()
    }

    #[test]
    fn a_row_of_predictions_has_the_labels_above_their_thresholds_by_probability() {
        let example = Example {
            text: "a ship".into(),
            text_pair: None,
            label: None,
            labels: vec!["sea".into()],
            numbers: vec![],
            line: 1,
        };
        let thresholds = Thresholds { values: vec![0.25, 0.5, 0.5], are_tuned: true };
        let row = PredictionRow::of_example(&example, &labels(), &[0.375, 0.5, 0.75], &thresholds);
        let line = row.line().unwrap();
        insta::assert_snapshot!(line.trim_end(), @r#"{"text":"a ship","labels":["crime","sea"],"gold":["sea"],"scores":[0.75,0.375],"probabilities":{"sea":0.375,"garden":0.5,"crime":0.75}}"#);
        assert!(rows_bytes(&[example], &labels()) > line.len() as u64);
    }

    #[test]
    fn the_table_has_a_row_for_each_label() {
        let gold = [vec![0], vec![0, 1], vec![]];
        let probabilities = [vec![0.4, 0.1, 0.2], vec![0.3, 0.9, 0.6], vec![0.1, 0.2, 0.3]];
        let tuned = Thresholds::tuned(3, &gold, &probabilities);
        let found = tally(&gold, &probabilities, &tuned);
        insta::assert_snapshot!(label_table(&found, &labels(), &tuned), @r"
        label   threshold  precision %  recall %    F1 %  examples
        sea         0.200       100.00    100.00  100.00         2
        garden      0.500       100.00    100.00  100.00         1
        crime       0.500         0.00      0.00    0.00         0
        ");
        assert_eq!(untuned(&probabilities, 3), [vec![], vec![1, 2], vec![]]);
        assert_eq!(scores(&found).map(|(name, _)| name), SCORES);
    }
}
