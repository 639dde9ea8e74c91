//! The columns of texts and labels that a model was trained on, stored in a file of its folder so that
//! `evaluate` and `predict` read the same columns, and know if texts come in pairs.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::error::Problem;
use base::fs;
use config::finetune::ClassifyData;

/// Name of the file.
const NAME: &str = "mlmtrain.json";

const CAP_BYTES: u64 = 1 << 20;

/// Columns by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrainedColumns {
    /// Column of the (first) text; `None` if the default names were used.
    pub text_column: Option<String>,
    /// Column of the second text; `None` for single texts.
    pub text_pair_column: Option<String>,
    /// Column of the label; `None` if the default names were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_column: Option<String>,
    /// Separator of several labels; `None` for the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_separator: Option<String>,
}

impl TrainedColumns {
    /// The columns that a configuration names.
    pub fn new(data: &ClassifyData) -> Self {
        Self {
            text_column: data.text_column.clone(),
            text_pair_column: data.text_pair_column.clone(),
            label_column: data.label_column.clone(),
            label_separator: data.label_separator.clone(),
        }
    }

    /// Columns of texts alone.
    #[cfg(test)]
    pub(super) fn of_texts(text: Option<&str>, text_pair: Option<&str>) -> Self {
        let [text_column, text_pair_column] = [text, text_pair].map(|name| name.map(str::to_string));
        Self { text_column, text_pair_column, ..Self::default() }
    }

    /// Reads the columns for the model in a folder; `None` if it has no such file.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(NAME);
        if !fs::exists(&path) {
            return Ok(None);
        }
        let columns = serde_json::from_slice(&fs::read_capped(&path, CAP_BYTES)?);
        Ok(Some(columns.map_err(|e| {
            Problem::new(format!("does not tell the columns of the texts: {e}"))
                .at(path.display())
                .hint("remove it, and name them with `--text-column` and `--text-pair-column`")
        })?))
    }

    /// Returns the name and the content of the file.
    pub fn file(&self) -> (String, Vec<u8>) {
        (NAME.to_string(), format!("{:#}\n", serde_json::json!(self)).into_bytes())
    }

    /// Note about how texts are read with these columns, if a user names the columns `text` and `text_pair`;
    /// `is_plain` for plain text. `None` if nothing needs to be explained.
    pub fn note(&self, text: Option<&str>, text_pair: Option<&str>, is_plain: bool) -> Option<String> {
        let first =
            text.or(self.text_column.as_deref()).map_or("texts".to_string(), |name| format!("`{name}`"));
        match (&self.text_pair_column, text_pair) {
            (Some(second), _) if is_plain => Some(format!(
                "note: the model was trained on pairs of {first} and `{second}`, and plain text has no pairs: \
                 the first texts are given alone"
            )),
            (Some(second), None) => Some(format!(
                "note: pairs of {first} and `{second}` are read where they are there, as in training"
            )),
            (None, Some(_)) => {
                Some("note: the model was trained on single texts, and pairs are asked for".to_string())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::labelled::{Columns, read_examples};

    #[test]
    fn what_is_written_is_read_again_and_a_broken_file_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(TrainedColumns::read(folder.path()).expect("is readable"), None);
        let pairs =
            TrainedColumns { label_separator: Some("|".into()), ..TrainedColumns::of_texts(None, Some("b")) };
        let (name, bytes) = pairs.file();
        std::fs::write(folder.path().join(&name), bytes).expect("a writable folder");
        assert_eq!(TrainedColumns::read(folder.path()).expect("is readable"), Some(pairs));
        std::fs::write(folder.path().join(&name), "[1]").expect("a writable folder");
        let error = TrainedColumns::read(folder.path()).expect_err("is broken").to_string();
        assert!(error.contains("mlmtrain.json: does not tell the columns"), "{error}");
    }

    #[test]
    fn the_label_column_and_separator_of_training_are_read_where_the_file_has_them() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let trained = TrainedColumns {
            label_column: Some("topic".into()),
            label_separator: Some("|".into()),
            ..TrainedColumns::default()
        };
        for (content, label, labels) in
            [("text,topic,label\nt,x|y,z\n", "x|y", vec!["x", "y"]), ("text,label\nt,z\n", "z", vec!["z"])]
        {
            let path = folder.path().join("a.csv");
            std::fs::write(&path, content).expect("a writable folder");
            let one = Columns { labelled: true, trained: Some(&trained), ..Columns::default() };
            assert_eq!(read_examples(&path, &one).expect("readable")[0].label.as_deref(), Some(label));
            let several = Columns { labelled: false, several: Some(&[]), ..one };
            assert_eq!(read_examples(&path, &several).expect("readable")[0].labels, labels);
        }
    }

    #[test]
    fn the_note_explains_how_texts_are_read() {
        let pairs = TrainedColumns::of_texts(Some("a"), Some("b"));
        assert!(note(&pairs, None, None, false).contains("pairs of `a` and `b` are read"));
        assert!(note(&pairs, Some("c"), None, false).contains("pairs of `c` and `b` are read"));
        assert!(note(&pairs, None, None, true).contains("plain text has no pairs"));
        assert_eq!(note(&pairs, Some("c"), Some("d"), false), "");
        let single = TrainedColumns::default();
        assert_eq!(single.note(None, None, true), None);
        assert!(note(&single, None, Some("b"), false).contains("trained on single texts"));
    }

    fn note(columns: &TrainedColumns, text: Option<&str>, pair: Option<&str>, is_plain: bool) -> String {
        columns.note(text, pair, is_plain).unwrap_or_default()
    }
}
