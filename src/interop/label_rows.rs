//! The rows of a folder's head for a head with other labels, or with the same ones in another order.
//!
//! A row follows the name of its label, never its position: two files seldom list labels in the same order.

use candle_core::Result;
use candle_core::Tensor;
use unicode_normalization::UnicodeNormalization;

use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::pages::columns::shortened;

/// Most labels that a line names.
const LISTED: usize = 8;

/// Characters of a label in it.
const LABEL_CHARS: usize = 40;

/// For each label of a new head the row of the old one.
#[derive(Debug, Clone)]
pub(super) struct LabelRows {
    /// Name of the map to labels.
    output: String,
    old: Vec<String>,
    new: Vec<String>,
    /// For each new label; `None` for one that the old head has not, or has twice.
    rows: Vec<Option<u32>>,
}

impl LabelRows {
    /// The rows of the head of `folder` for a head of kind `head` with these labels; none where it is of another
    /// kind, such as that of a tagger for a classifier.
    pub(super) fn new(folder: &PretrainedFolder, head: HeadKind, labels: &[String]) -> Self {
        let family = folder.config.family;
        let output = match head {
            HeadKind::TokenClassification => family.token_classifier.unwrap_or_default(),
            _ => family.classification.output,
        };
        let is_alike = folder.head.has_labels() && folder.head.is_of_sequences() == head.is_of_sequences();
        let old = folder.id2label.clone().filter(|_| is_alike).unwrap_or_default();
        Self::from_labels(output, old, labels)
    }

    /// Name of the map to labels.
    pub(super) fn output(&self) -> &str {
        &self.output
    }

    fn from_labels(output: &str, old: Vec<String>, new: &[String]) -> Self {
        let composed: Vec<String> = old.iter().map(|label| label.nfc().collect()).collect();
        let row = |label: &String| {
            let label: String = label.nfc().collect();
            let mut places = composed.iter().zip(0u32..).filter(|(old, _)| **old == label);
            places.next().map(|(_, place)| place).filter(|_| places.next().is_none())
        };
        let rows = new.iter().map(row).collect();
        Self { output: output.to_string(), old, new: new.to_vec(), rows }
    }

    /// Returns true if a parameter is the weight or the bias of the projection to labels.
    pub(super) fn are_of(&self, name: &str) -> bool {
        name.strip_prefix(self.output.as_str()).is_some_and(|end| end == ".weight" || end == ".bias")
    }

    /// The shape in the folder of a parameter that has this one.
    pub(super) fn old_shape(&self, shape: &[usize]) -> Vec<usize> {
        std::iter::once(self.old.len()).chain(shape.iter().copied().skip(1)).collect()
    }

    /// Returns true if a row of the old head is kept.
    pub(super) fn keep_any(&self) -> bool {
        self.rows.iter().any(Option::is_some)
    }

    /// The rows of `old` that are kept, and those of `initial` for new labels.
    pub(super) fn of(&self, old: &Tensor, initial: &Tensor) -> Result<Tensor> {
        let initial = initial.to_device(old.device())?.to_dtype(old.dtype())?;
        let count = old.dim(0)? as u32;
        let both = Tensor::cat(&[old, &initial], 0)?;
        let rows: Vec<u32> = self.rows.iter().zip(count..).map(|(row, new)| row.unwrap_or(new)).collect();
        both.index_select(&Tensor::new(rows, old.device())?, 0)
    }

    /// A line for the log that names the rows that were kept; `fresh` are the parameters that keep none.
    pub(super) fn told(&self, fresh: &[String]) -> String {
        let is_fresh = fresh.iter().any(|name| self.are_of(name));
        let (kept, new): (Vec<_>, Vec<_>) =
            self.new.iter().zip(&self.rows).partition(|(_, row)| row.is_some() && !is_fresh);
        let names = |rows: &[(&String, &Option<u32>)]| listed(rows.iter().map(|(label, _)| *label));
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
        let is_left = |at: &u32| !self.rows.contains(&Some(*at));
        let left: Vec<u32> = (0..self.old.len() as u32).filter(is_left).collect();
        let left = listed(left.iter().map(|&at| &self.old[at as usize]));
        let part =
            |what: &str, labels: String| if labels.is_empty() { labels } else { format!("{what} {labels}") };
        let more = [part("; new and fresh are", names(&new)), part("; left out are", left)].concat();
        format!("rows of its head are kept by the names of their labels: {}{more}", names(&kept))
    }
}

/// The first labels, and how many more.
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
        let column = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap().unsqueeze(1).unwrap();
        let found = rows.of(&column(&[1.0, 2.0, 3.0]), &column(&[7.0, 8.0, 9.0])).unwrap();
        assert_eq!(found.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [3.0, 8.0, 1.0]);
        assert_eq!((rows.old_shape(&[3, 32]), rows.old_shape(&[3])), (vec![3, 32], vec![3]));
        assert!(rows.are_of("classifier.weight") && !rows.are_of("classifier.dense.weight"));
        insta::assert_snapshot!(rows.told(&[]), @"rows of its head are kept by the names of their labels: `negative`, `positive`; new and fresh are `mixed`; left out are `neutral`");
    }

    #[test]
    fn a_line_says_which_rows_were_kept() {
        let told = |old: &[&str], new: &[&str]| rows(old, new).told(&[]);
        assert_eq!(told(&["a", "b"], &["a", "b"]), "the rows of all 2 labels of its head are kept");
        assert_eq!(
            told(&["a", "b"], &["b", "a"]),
            "rows of its head are kept by the names of their labels: `b`, `a`"
        );
        let none = told(&["LABEL_0", "LABEL_1"], &["a", "b"]);
        assert!(
            none.starts_with("no row of its head is kept: its labels are `LABEL_0`, `LABEL_1`"),
            "{none}"
        );
        assert!(told(&[], &["a", "b"]).contains("of another kind"));
    }

    #[test]
    fn names_are_the_same_in_both_forms_of_unicode_and_a_name_that_is_there_twice_is_none() {
        assert_eq!(rows(&["caf\u{e9}", "b"], &["cafe\u{301}"]).rows, [Some(0)]);
        assert_eq!(rows(&["a", "a", "b"], &["a", "b"]).rows, [None, Some(2)]);
    }
}
