//! What a classifier says: rows of predictions as JSONL, and the confusion matrix as a table.
//!
//! Scores themselves are `scores`' matter.

use std::io::Write;

use anyhow::Context;
use anyhow::Result;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

/// The widest table that is printed whole; above, only the most frequent confusions are listed.
const TABLE_LABELS: usize = 20;

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

/// The confusion matrix as text: a row for each label in the file, a column for each predicted one.
///
/// `counts[gold][predicted]` is square, in the order of `labels`. Of more than 20 labels, only the most
/// frequent confusions are listed. Ends in a newline.
pub fn confusion_table(counts: &[&[u64]], labels: &[String]) -> String {
    if labels.len() > TABLE_LABELS {
        frequent_confusions(counts, labels)
    } else {
        whole_table(counts, labels)
    }
}

fn whole_table(counts: &[&[u64]], labels: &[String]) -> String {
    let header = std::iter::once("gold \\ predicted".to_string()).chain(labels.iter().cloned()).collect();
    let row = |(label, counts): (&String, &&[u64])| {
        std::iter::once(label.clone()).chain(counts.iter().map(u64::to_string)).collect()
    };
    let cells: Vec<Vec<String>> = std::iter::once(header).chain(labels.iter().zip(counts).map(row)).collect();
    let widths: Vec<usize> = (0..=labels.len())
        .map(|column| cells.iter().map(|row| width(&row[column])).max().unwrap_or(0))
        .collect();
    let numbers = |row: &Vec<String>| {
        row.iter()
            .zip(&widths)
            .skip(1)
            .map(|(cell, columns)| right(cell, *columns))
            .collect::<Vec<_>>()
            .join("  ")
    };
    let line = |row: &Vec<String>| format!("{}  {}\n", left(&row[0], widths[0]), numbers(row));
    cells.iter().map(line).collect()
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
        ");
    }

    #[test]
    fn of_many_labels_only_the_confusions_are_listed() {
        let names: Vec<String> = (0..21).map(|id| format!("c{id}")).collect();
        let mut counts = vec![vec![0u64; 21]; 21];
        counts[4][4] = 50;
        counts[4][5] = 2;
        counts[7][1] = 9;
        let rows: Vec<&[u64]> = counts.iter().map(Vec::as_slice).collect();
        insta::assert_snapshot!(confusion_table(&rows, &names), @r"
        2 most frequent of 2 confusions, as count  gold -> predicted
             9  c7 -> c1
             2  c4 -> c5
        ");
    }
}
