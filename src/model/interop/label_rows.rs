//! Chooses the rows of a folder's head for a new head with other labels, or with the same labels in another
//! order.
//!
//! Rows are matched by the name of the label, never by position: two files seldom list labels in the same
//! order.

use candle_core::{Result, Tensor};
use unicode_normalization::UnicodeNormalization;

use crate::interop::PretrainedFolder;
use base::families::HeadKind;
use base::pages::columns::shortened;

/// Largest number of labels that a line of the log names.
const LISTED: usize = 8;

/// Largest number of characters of a label in a line of the log.
const LABEL_CHARS: usize = 40;

/// For each label of a new head, the row of the old head with the same label.
#[derive(Debug, Clone)]
pub(super) struct LabelRows {
    /// Name of the projection to labels, without `.weight` or `.bias`.
    output: String,
    /// Labels of the old head.
    old: Vec<String>,
    /// Labels of the new head.
    new: Vec<String>,
    /// For each new label its row in the old head; `None` if the old head lacks the label or has it twice.
    rows: Vec<Option<u32>>,
}

impl LabelRows {
    /// Chooses rows of the folder's head for a head of kind `head` with these labels. Chooses none if the
    /// folder's head is of another kind, such as a tagger's for a classifier.
    pub(super) fn new(folder: &PretrainedFolder, head: HeadKind, labels: &[String]) -> Self {
        let family = folder.config.family;
        let output = match head {
            HeadKind::TokenClassification => family.token_classifier.unwrap_or_default(),
            _ => family.classification.output,
        };
        let is_same_kind =
            folder.head.has_labels() && folder.head.is_of_sequences() == head.is_of_sequences();
        let old = folder.id2label.clone().filter(|_| is_same_kind).unwrap_or_default();
        let mut rows = Self::from_labels(output, old, labels);
        // A single number is the same one whatever its column is called: transformers calls it `LABEL_0`.
        if head == HeadKind::Regression && rows.old.len() == 1 && labels.len() == 1 {
            rows.rows = vec![Some(0)];
        }
        rows
    }

    pub(super) fn output(&self) -> &str {
        &self.output
    }

    fn from_labels(output: &str, old: Vec<String>, new: &[String]) -> Self {
        let composed: Vec<String> = old.iter().map(|label| label.nfc().collect()).collect();
        let rows = new.iter().map(|label| only_row_of(label, &composed)).collect();
        Self { output: output.to_string(), old, new: new.to_vec(), rows }
    }

    /// Returns true if a parameter is the weight or the bias of the projection to labels.
    pub(super) fn covers(&self, name: &str) -> bool {
        name.strip_prefix(self.output.as_str()).is_some_and(|end| end == ".weight" || end == ".bias")
    }

    /// Returns the shape in the folder of a parameter that has `shape` in the model: only the number of rows
    /// differs.
    pub(super) fn old_shape(&self, shape: &[usize]) -> Vec<usize> {
        std::iter::once(self.old.len()).chain(shape.iter().copied().skip(1)).collect()
    }

    /// Returns true if at least one row of the old head is kept.
    pub(super) fn keep_any(&self) -> bool {
        self.rows.iter().any(Option::is_some)
    }

    /// Returns one row for each new label: the row of `old` that is kept, else the label's own row of
    /// `initial`.
    pub(super) fn merge(&self, old: &Tensor, initial: &Tensor) -> Result<Tensor> {
        let initial = initial.to_device(old.device())?.to_dtype(old.dtype())?;
        let count = old.dim(0)? as u32;
        let both = Tensor::cat(&[old, &initial], 0)?;
        let rows: Vec<u32> = self.rows.iter().zip(count..).map(|(row, new)| row.unwrap_or(new)).collect();
        both.index_select(&Tensor::new(rows, old.device())?, 0)
    }

    /// Returns a line for the log that names the rows that were kept. `fresh` are the names of the parameters
    /// that keep their initial values.
    pub(super) fn describe(&self, fresh: &[String]) -> String {
        let is_fresh = fresh.iter().any(|name| self.covers(name));
        let (kept, new): (Vec<_>, Vec<_>) =
            self.new.iter().zip(&self.rows).partition(|(_, row)| row.is_some() && !is_fresh);
        if kept.is_empty() {
            let old =
                if self.old.is_empty() { "of another kind".to_string() } else { listed(self.old.iter()) };
            return format!(
                "no row of its head is kept: its labels are {old}, and those of this run begin fresh"
            );
        }
        if new.is_empty() && self.rows.iter().flatten().copied().eq(0..self.old.len() as u32) {
            return format!("the rows of all {} labels of its head are kept", kept.len());
        }
        let left: Vec<&String> = self
            .old
            .iter()
            .zip(0..)
            .filter(|(_, row)| !self.rows.contains(&Some(*row)))
            .map(|(label, _)| label)
            .collect();
        let left = titled("; left out are", listed(left.into_iter()));
        let new = titled("; new and fresh are", listed(new.iter().map(|(label, _)| *label)));
        let kept = listed(kept.iter().map(|(label, _)| *label));
        format!("rows of its head are kept by the names of their labels: {kept}{new}{left}")
    }
}

/// Returns the row whose label is `label`, if exactly one is. `composed` are the labels of all rows
/// in Unicode's form NFC.
fn only_row_of(label: &str, composed: &[String]) -> Option<u32> {
    let label: String = label.nfc().collect();
    let mut rows = composed.iter().zip(0u32..).filter(|(old, _)| **old == label);
    rows.next().map(|(_, row)| row).filter(|_| rows.next().is_none())
}

/// Returns the title and the labels; nothing if there are no labels.
fn titled(title: &str, labels: String) -> String {
    if labels.is_empty() { labels } else { format!("{title} {labels}") }
}

/// Returns the first labels in backquotes, and the number of the others.
fn listed<'a>(labels: impl ExactSizeIterator<Item = &'a String>) -> String {
    let count = labels.len();
    let shown: Vec<String> =
        labels.take(LISTED).map(|label| format!("`{}`", shortened(label, LABEL_CHARS))).collect();
    let more = count.saturating_sub(LISTED);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn owned(labels: &[&str]) -> Vec<String> {
        labels.iter().map(|label| (*label).to_string()).collect()
    }

    fn rows(old: &[&str], new: &[&str]) -> LabelRows {
        LabelRows::from_labels("classifier", owned(old), &owned(new))
    }

    #[test]
    fn rows_follow_the_names_of_their_labels() {
        let rows = rows(&["positive", "neutral", "negative"], &["negative", "mixed", "positive"]);
        assert_eq!(rows.rows, [Some(2), None, Some(0)]);
        let found = rows.merge(&column(&[1.0, 2.0, 3.0]), &column(&[7.0, 8.0, 9.0])).unwrap();
        assert_eq!(found.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [3.0, 8.0, 1.0]);
        assert_eq!((rows.old_shape(&[3, 32]), rows.old_shape(&[3])), (vec![3, 32], vec![3]));
        assert!(rows.covers("classifier.weight") && !rows.covers("classifier.dense.weight"));
        insta::assert_snapshot!(rows.describe(&[]), @"rows of its head are kept by the names of their labels: `negative`, `positive`; new and fresh are `mixed`; left out are `neutral`");
    }

    #[test]
    fn a_line_says_which_rows_were_kept() {
        assert_eq!(line(&["a", "b"], &["a", "b"]), "the rows of all 2 labels of its head are kept");
        assert_eq!(
            line(&["a", "b"], &["b", "a"]),
            "rows of its head are kept by the names of their labels: `b`, `a`"
        );
        let none = line(&["LABEL_0", "LABEL_1"], &["a", "b"]);
        assert!(
            none.starts_with("no row of its head is kept: its labels are `LABEL_0`, `LABEL_1`"),
            "{none}"
        );
        assert!(line(&[], &["a", "b"]).contains("of another kind"));
    }

    #[test]
    fn labels_match_in_both_forms_of_unicode_and_a_repeated_label_matches_nothing() {
        assert_eq!(rows(&["caf\u{e9}", "b"], &["cafe\u{301}"]).rows, [Some(0)]);
        assert_eq!(rows(&["a", "a", "b"], &["a", "b"]).rows, [None, Some(2)]);
    }

    fn column(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap().unsqueeze(1).unwrap()
    }

    fn line(old: &[&str], new: &[&str]) -> String {
        rows(old, new).describe(&[])
    }
}
