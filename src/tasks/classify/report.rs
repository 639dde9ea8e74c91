//! Output of a classifier: rows of predictions as JSONL, and the confusion matrix as a table.
//!
//! The scores themselves are computed in `scores`.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::pages::columns::shortened;
use crate::scores::Confusion;
use crate::tasks::labelled::Example;
use crate::tasks::table::{WIDEST, aligned, percent_number};

/// Most characters of a label in the table of scores.
const LABEL_CHARS: usize = 50;
/// Most characters of a label in a matrix with numbered columns.
const NUMBERED_CHARS: usize = 16;

/// Heading of the matrix: rows are gold labels, columns predicted ones.
const CORNER: &str = "gold \\ predicted";

/// Number of confusions that are listed if the matrix would be too wide.
const LISTED_CONFUSIONS: usize = 20;

/// One line of a predictions file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictionRow {
    /// The (first) text.
    pub text: String,
    /// The second text of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_pair: Option<String>,
    /// The label with the highest probability, the first one of equals.
    pub label: String,
    /// The label in the file, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gold: Option<String>,
    /// The probability of `label`.
    pub score: f64,
    /// The probability of each label, in the order of their ids.
    pub probabilities: Map<String, Value>,
}

impl PredictionRow {
    /// Makes the row of a text from the probabilities of its classes, one for each of `labels`, which must
    /// not be empty.
    pub fn new(
        text: String,
        text_pair: Option<String>,
        gold: Option<String>,
        labels: &[String],
        probabilities: &[f32],
    ) -> Self {
        let best = best_class(probabilities);
        Self {
            text,
            text_pair,
            label: labels[best].clone(),
            gold,
            score: f64::from(probabilities[best]),
            probabilities: labels
                .iter()
                .cloned()
                .zip(probabilities.iter().map(|p| Value::from(*p)))
                .collect(),
        }
    }

    /// Formats the row as a line of JSON, including the newline.
    pub fn line(&self) -> Result<String> {
        Ok(serde_json::to_string(self).context("cannot write a prediction as JSON")? + "\n")
    }
}

/// Returns the index of the largest number, the first one of equals; 0 if there are no numbers.
pub fn best_class(values: &[f32]) -> usize {
    (0..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

/// Most bytes of a probability in a row of predictions, including the punctuation around it and its label.
const PROBABILITY_BYTES: u64 = 30;

/// Estimates the bytes of the lines of these examples in a predictions file. Few characters need a JSON
/// escape.
pub fn rows_bytes(examples: &[Example], labels: &[String]) -> u64 {
    let longest = labels.iter().map(String::len).max().unwrap_or(0) as u64;
    let label_bytes: u64 = labels.iter().map(|label| label.len() as u64 + PROBABILITY_BYTES).sum();
    let texts = examples.iter().map(|e| e.text.len() + e.text_pair.as_ref().map_or(0, String::len));
    let text_bytes = texts.sum::<usize>() as u64;
    // 150 bytes for the names of the keys, and twice a label: the predicted one and the one in the file.
    text_bytes + examples.len() as u64 * (label_bytes + 2 * longest + 150)
}

/// Formats the confusion matrix as text, followed by precision, recall, F1 and support of each label.
///
/// `labels` are the names of the classes: a row for each gold label, a column for each predicted one. If the
/// names make the table too wide, columns are headed by the numbers of their labels; if that is still too
/// wide, only the most frequent confusions are listed. Ends in a newline.
pub fn confusion_table(confusion: &Confusion, labels: &[String]) -> String {
    let matrix = named_columns(confusion, labels)
        .or_else(|| numbered_columns(confusion, labels))
        .unwrap_or_else(|| frequent_confusions(confusion, labels));
    format!("{matrix}\n{}", scores_by_label(confusion, labels))
}

fn named_columns(confusion: &Confusion, labels: &[String]) -> Option<String> {
    may_fit(labels)?;
    let rows = labels.iter().enumerate().map(|(gold, label)| numbers(label.clone(), confusion, gold));
    let header = std::iter::once(CORNER.to_string()).chain(labels.iter().cloned()).collect();
    aligned(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

/// The number in front of a row's label is the heading of its column.
fn numbered_columns(confusion: &Confusion, labels: &[String]) -> Option<String> {
    may_fit(labels)?;
    let header = std::iter::once(CORNER.to_string()).chain((1..=labels.len()).map(|n| n.to_string()));
    let rows = labels.iter().enumerate().map(|(index, label)| {
        numbers(format!("{:>2} {}", index + 1, shortened(label, NUMBERED_CHARS)), confusion, index)
    });
    aligned(&std::iter::once(header.collect()).chain(rows).collect::<Vec<_>>())
}

/// Returns `None` if even a digit for each column is too wide, so that no table of thousands of labels is
/// built.
fn may_fit(labels: &[String]) -> Option<()> {
    (labels.len() * 3 <= WIDEST).then_some(())
}

/// The row of label `gold`: `first`, then its counts.
fn numbers(first: String, confusion: &Confusion, gold: usize) -> Vec<String> {
    let counts = (0..confusion.classes()).map(|predicted| confusion.count(gold, predicted).to_string());
    std::iter::once(first).chain(counts).collect()
}

fn scores_by_label(confusion: &Confusion, labels: &[String]) -> String {
    let mut rows =
        vec![["label", "precision %", "recall %", "F1 %", "examples"].map(str::to_string).to_vec()];
    for (label, score) in labels.iter().zip(confusion.per_class()) {
        rows.push(vec![
            shortened(label, LABEL_CHARS),
            percent_number(score.precision),
            percent_number(score.recall),
            percent_number(score.f1),
            score.support.to_string(),
        ]);
    }
    aligned(&rows).expect("the label is shortened and the numbers are narrow")
}

fn frequent_confusions(confusion: &Confusion, labels: &[String]) -> String {
    let mut wrong: Vec<(u64, usize, usize)> =
        confusion.mistakes().map(|(gold, predicted, count)| (count, gold, predicted)).collect();
    wrong.sort_by_key(|(count, gold, predicted)| (std::cmp::Reverse(*count), *gold, *predicted));
    let shown = wrong.len().min(LISTED_CONFUSIONS);
    let title = format!("{shown} most frequent of {} confusions, as count  gold -> predicted\n", wrong.len());
    let mut lines = vec![title];
    for (count, gold, predicted) in &wrong[..shown] {
        lines.push(format!("{count:>6}  {} -> {}\n", labels[*gold], labels[*predicted]));
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    /// Confusion matrix from (gold class, predicted class, count).
    fn confusion(classes: usize, counts: &[(u32, u32, u32)]) -> Confusion {
        let mut confusion = Confusion::new(classes);
        for &(gold, predicted, count) in counts {
            (0..count).for_each(|_| confusion.add(gold, predicted));
        }
        confusion
    }

    #[test]
    fn a_row_of_predictions_is_one_line_of_json_in_label_order() {
        let row = PredictionRow::new(
            "a \"b\"\nc".into(),
            None,
            Some("neg".into()),
            &labels(&["pos", "neg"]),
            &[0.75, 0.25],
        );
        let text = row.line().expect("has a JSON form");
        let example = Example {
            text: "a \"b\"\nc".into(),
            text_pair: None,
            label: None,
            labels: vec![],
            numbers: vec![],
            line: 1,
        };
        let estimate = rows_bytes(&[example], &labels(&["pos", "neg"]));
        assert!((text.len() as u64..3 * text.len() as u64).contains(&estimate), "{estimate}");
        assert!(text.ends_with('\n'));
        insta::assert_snapshot!(text.trim_end(), @r#"{"text":"a \"b\"\nc","label":"pos","gold":"neg","score":0.75,"probabilities":{"pos":0.75,"neg":0.25}}"#);
    }

    #[test]
    fn the_first_of_equal_classes_is_the_prediction() {
        assert_eq!(best_class(&[0.2, 0.4, 0.4]), 1);
        assert_eq!(best_class(&[0.5]), 0);
    }

    #[test]
    fn a_small_matrix_is_shown_whole() {
        let counts = confusion(2, &[(0, 0, 120), (0, 1, 3), (1, 0, 7), (1, 1, 88)]);
        let table = confusion_table(&counts, &labels(&["ympäristöministeri", "pos"]));
        insta::assert_snapshot!(table, @r"
        gold \ predicted    ympäristöministeri  pos
        ympäristöministeri                 120    3
        pos                                  7   88

        label               precision %  recall %   F1 %  examples
        ympäristöministeri        94.49     97.56  96.00       123
        pos                       96.70     92.63  94.62        95
        ");
    }

    #[test]
    fn fifteen_long_labels_fit_the_terminal_by_their_numbers() {
        let names: Vec<String> = (0..15).map(|id| format!("ympäristöministeriö, osasto {id}")).collect();
        let table = confusion_table(&confusion(15, &[(0, 0, 812), (0, 14, 7), (14, 14, 1204)]), &names);
        assert!(table.lines().all(|line| line.chars().count() <= WIDEST), "{table}");
        insta::assert_snapshot!(table.lines().step_by(15).collect::<Vec<_>>().join("\n"), @r"
        gold \ predicted       1  2  3  4  5  6  7  8  9  10  11  12  13  14    15
        15 ympäristöminist…    0  0  0  0  0  0  0  0  0   0   0   0   0   0  1204
        ympäristöministeriö, osasto 12         0.00      0.00   0.00         0
        ");
    }

    #[test]
    fn of_many_labels_only_the_confusions_are_listed() {
        // A table of this many columns is not even built.
        let many: Vec<String> = (0..100_000).map(|id| format!("c{id}")).collect();
        let table = confusion_table(&confusion(many.len(), &[(99_999, 0, 1)]), &many);
        assert!(table.starts_with("1 most frequent of 1 confusions"), "{}", &table[..80]);
        let names: Vec<String> = (0..77).map(|id| format!("c{id}")).collect();
        let table = confusion_table(&confusion(77, &[(4, 4, 50), (4, 5, 2), (7, 1, 9)]), &names);
        insta::assert_snapshot!(table.lines().take(10).collect::<Vec<_>>().join("\n"), @"
        2 most frequent of 2 confusions, as count  gold -> predicted
             9  c7 -> c1
             2  c4 -> c5

        label  precision %  recall %   F1 %  examples
        c0            0.00      0.00   0.00         0
        c1            0.00      0.00   0.00         0
        c2            0.00      0.00   0.00         0
        c3            0.00      0.00   0.00         0
        c4          100.00     96.15  98.04        52
        ");
    }
}
