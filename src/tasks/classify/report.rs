//! What a classifier says: rows of predictions as JSONL, and the confusion matrix as a table.
//!
//! Scores themselves are `scores`' matter.

use std::io::Write;

use anyhow::Context;
use anyhow::Result;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

use crate::scores::ClassScore;
use crate::scores::Confusion;

/// Columns of a terminal that a table may take.
const WIDEST: usize = 100;

/// Characters of a label before its scores, and before a row of a matrix with numbered columns.
const LABEL_CHARS: usize = 50;
const NUMBERED_CHARS: usize = 16;

/// What rows and columns of the matrix are.
const CORNER: &str = "gold \\ predicted";

/// How many confusions are listed where the table would be too wide.
const LISTED_CONFUSIONS: usize = 20;

/// One line of a predictions file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictionRow {
    /// The (first) text.
    pub text: String,
    /// The second text of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_pair: Option<String>,
    /// The label of the highest probability, the first of equals.
    pub label: String,
    /// The label in the file, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gold: Option<String>,
    /// The probability of `label`.
    pub score: f64,
    /// The probability of each label, in the order of their ids.
    pub probabilities: Map<String, Value>,
}

impl PredictionRow {
    /// The row of a text whose classes have these `probabilities` (one for each of `labels`, which must not
    /// be empty).
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
}

/// The index of the largest number, the first of equals; 0 when there is none.
pub fn best_class(values: &[f32]) -> usize {
    let larger = |best: usize, index: usize| if values[index] > values[best] { index } else { best };
    (0..values.len()).fold(0, larger)
}

/// Writes rows as JSON, one a line.
pub fn write_rows<'a>(out: &mut impl Write, rows: impl IntoIterator<Item = &'a PredictionRow>) -> Result<()> {
    for row in rows {
        let line = serde_json::to_string(row).context("cannot write a prediction as JSON")?;
        writeln!(out, "{line}").context("cannot write predictions")?;
    }
    Ok(())
}

/// The confusion matrix as text, then precision, recall, F1 and support of each label.
///
/// `counts[gold][predicted]` is square, in the order of `labels`: a row for each label in the file, a column
/// for each predicted one. Where the names make it too wide, columns have the numbers of their labels; where
/// that is too wide, only the most frequent confusions are listed. Ends in a newline.
pub fn confusion_table(counts: &[&[u64]], labels: &[String]) -> String {
    let matrix = named_columns(counts, labels)
        .or_else(|| numbered_columns(counts, labels))
        .unwrap_or_else(|| frequent_confusions(counts, labels));
    format!("{matrix}\n{}", scores_by_label(counts, labels))
}

fn named_columns(counts: &[&[u64]], labels: &[String]) -> Option<String> {
    let rows = labels.iter().zip(counts).map(|(label, counts)| numbers(label.clone(), counts));
    let header = std::iter::once(CORNER.to_string()).chain(labels.iter().cloned()).collect();
    aligned(std::iter::once(header).chain(rows).collect())
}

/// The number before a row's label is that of its column.
fn numbered_columns(counts: &[&[u64]], labels: &[String]) -> Option<String> {
    let row = |(index, label): (usize, &String)| {
        numbers(format!("{:>2} {}", index + 1, shortened(label, NUMBERED_CHARS)), counts[index])
    };
    let header = std::iter::once(CORNER.to_string()).chain((1..=labels.len()).map(|n| n.to_string()));
    aligned(std::iter::once(header.collect()).chain(labels.iter().enumerate().map(row)).collect())
}

fn numbers(first: String, counts: &[u64]) -> Vec<String> {
    std::iter::once(first).chain(counts.iter().map(u64::to_string)).collect()
}

fn scores_by_label(counts: &[&[u64]], labels: &[String]) -> String {
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    let row = |(label, of): (&String, ClassScore)| {
        let label = shortened(label, LABEL_CHARS);
        vec![label, percent(of.precision), percent(of.recall), percent(of.f1), of.support.to_string()]
    };
    let header = ["label", "precision %", "recall %", "F1 %", "examples"].map(str::to_string).to_vec();
    let scores = Confusion::of_rows(counts).per_class();
    let rows = std::iter::once(header).chain(labels.iter().zip(scores).map(row)).collect();
    aligned(rows).expect("the label is shortened and the numbers are narrow")
}

/// Rows of cells, the first to the left and all others to the right; `None` where that is too wide.
fn aligned(rows: Vec<Vec<String>>) -> Option<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0)).collect();
    if widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1) > WIDEST {
        return None;
    }
    let line = |row: Vec<String>| {
        let cells =
            row.iter().zip(&widths).skip(1).map(|(cell, columns)| format!("  {}", right(cell, *columns)));
        format!("{}{}\n", left(&row[0], widths[0]), cells.collect::<String>())
    };
    Some(rows.into_iter().map(line).collect())
}

fn frequent_confusions(counts: &[&[u64]], labels: &[String]) -> String {
    let mut wrong: Vec<(u64, usize, usize)> = Vec::new();
    for (gold, row) in counts.iter().enumerate() {
        wrong.extend(
            row.iter()
                .enumerate()
                .filter(|(predicted, count)| *predicted != gold && **count > 0)
                .map(|(p, count)| (*count, gold, p)),
        );
    }
    wrong.sort_by_key(|(count, gold, predicted)| (std::cmp::Reverse(*count), *gold, *predicted));
    let shown = wrong.len().min(LISTED_CONFUSIONS);
    let title = format!("{shown} most frequent of {} confusions, as count  gold -> predicted\n", wrong.len());
    let line = |(count, gold, predicted): &(u64, usize, usize)| {
        format!("{count:>6}  {} -> {}\n", labels[*gold], labels[*predicted])
    };
    std::iter::once(title).chain(wrong[..shown].iter().map(line)).collect()
}

// Padding counts characters: labels may hold letters of several bytes.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn shortened(text: &str, characters: usize) -> String {
    if width(text) <= characters {
        return text.to_string();
    }
    text.chars().take(characters - 1).chain(['…']).collect()
}

fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
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
        let mut out = Vec::new();
        write_rows(&mut out, [&row]).expect("a vector takes all");
        let text = String::from_utf8(out).expect("JSON is UTF-8");
        insta::assert_snapshot!(text.trim_end(), @r#"{"text":"a \"b\"\nc","label":"pos","gold":"neg","score":0.75,"probabilities":{"pos":0.75,"neg":0.25}}"#);
    }

    #[test]
    fn the_first_of_equal_classes_is_the_prediction() {
        assert_eq!(best_class(&[0.2, 0.4, 0.4]), 1);
        assert_eq!(best_class(&[0.5]), 0);
    }

    #[test]
    fn a_small_matrix_is_shown_whole() {
        let table = confusion_table(&[&[120, 3], &[7, 88]], &labels(&["ympäristöministeri", "pos"]));
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
        let mut counts = vec![vec![0u64; 15]; 15];
        (counts[0][0], counts[0][14], counts[14][14]) = (812, 7, 1204);
        let rows: Vec<&[u64]> = counts.iter().map(Vec::as_slice).collect();
        let table = confusion_table(&rows, &names);
        assert!(table.lines().all(|line| line.chars().count() <= WIDEST), "{table}");
        insta::assert_snapshot!(table.lines().step_by(15).collect::<Vec<_>>().join("\n"), @r"
        gold \ predicted       1  2  3  4  5  6  7  8  9  10  11  12  13  14    15
        15 ympäristöminist…    0  0  0  0  0  0  0  0  0   0   0   0   0   0  1204
        ympäristöministeriö, osasto 12         0.00      0.00   0.00         0
        ");
    }

    #[test]
    fn of_many_labels_only_the_confusions_are_listed() {
        let names: Vec<String> = (0..77).map(|id| format!("c{id}")).collect();
        let mut counts = vec![vec![0u64; 77]; 77];
        counts[4][4] = 50;
        counts[4][5] = 2;
        counts[7][1] = 9;
        let rows: Vec<&[u64]> = counts.iter().map(Vec::as_slice).collect();
        let table = confusion_table(&rows, &names);
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
