//! Texts to label, each with the other fields of its row, read one by one.
//!
//! Unlike examples they are not read as a whole, since an input may be endless. An empty text is a text.

use std::iter;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::tasks::labelled::read::{Chosen, Columns};
use crate::tasks::labelled::trained_columns::TrainedColumns;
use base::error::Problem;
use data::records::{Row, RowError, RowFormat, Rows, Source, rows_of, take, take_field};

/// A text, and the second text of a pair.
pub type TextPair = (String, Option<String>);

/// One text, or pair of texts, of an input.
#[derive(Debug, Clone, PartialEq)]
pub struct InputText {
    /// File and line, for errors.
    pub place: String,
    /// The text or pair of texts to label.
    pub texts: TextPair,
    /// The other fields of the row, in order.
    pub others: Map<String, Value>,
}

impl InputText {
    /// Renames other fields whose names `output` uses: `label` becomes `input_label` if the output has a
    /// `label`.
    pub fn others_beside(&self, output: &Map<String, Value>) -> Map<String, Value> {
        let mut named = Map::new();
        for (name, value) in &self.others {
            let mut free = name.clone();
            while output.contains_key(&free) || free != *name && self.others.contains_key(&free) {
                free.insert_str(0, "input_");
            }
            named.insert(free, value.clone());
        }
        named
    }
}

/// Iterator over the texts of an input.
pub struct InputTexts {
    name: String,
    rows: Box<dyn Rows>,
    text: Option<String>,
    text_pair: Option<String>,
    trained: Option<TrainedColumns>,
    chosen: Option<Chosen>,
}

impl InputTexts {
    /// Opens a file, or standard input if `path` is `-`. Without `format` the extension selects it: anything
    /// but `.csv`, `.tsv`, `.jsonl` (each also compressed) and `.parquet` is plain text, one text per line.
    pub fn open(path: &Path, format: Option<RowFormat>, columns: &Columns<'_>) -> Result<Self> {
        let format = format.or_else(|| RowFormat::of(path)).unwrap_or(RowFormat::Text);
        let is_named = columns.text.is_some() || columns.text_pair.is_some();
        if format == RowFormat::Text && is_named {
            return Err(Problem::usage("a column is named, but plain text has none")
                .at(path.display())
                .hint("say what it is: `--format csv`, `--format tsv` or `--format jsonl`")
                .into());
        }
        let (name, rows) = if path == Path::new("-") {
            let source = Source::standard_input(columns.encoding)?;
            (source.name.clone(), source.rows(format)?)
        } else {
            (path.display().to_string(), rows_of(path, format, columns.encoding)?)
        };
        Ok(Self {
            name,
            rows,
            text: columns.text.map(str::to_string),
            text_pair: columns.text_pair.map(str::to_string),
            trained: columns.trained.filter(|_| format != RowFormat::Text).cloned(),
            chosen: None,
        })
    }

    /// Name of the input, for errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The next row, unchanged.
    pub(super) fn next_row(&mut self) -> Option<Result<Row, RowError>> {
        self.rows.next()
    }

    /// Takes the text or pair of texts out of a row.
    pub(super) fn text_of(&mut self, mut row: Row) -> Result<InputText> {
        let columns = Columns {
            text: self.text.as_deref(),
            text_pair: self.text_pair.as_deref(),
            trained: self.trained.as_ref(),
            ..Columns::default()
        };
        let chosen = match &mut self.chosen {
            Some(chosen) => chosen,
            none => none.insert(Chosen::new(&self.name, &row, &columns)?),
        };
        let place = format!("{}:{}", self.name, row.line);
        let text = take(&self.name, &mut row, &chosen.text)?.unwrap_or_default();
        let text_pair = match &chosen.text_pair {
            Some(name) => Some(take(&self.name, &mut row, name)?.unwrap_or_default()),
            None => None,
        };
        let mut others = row.into_fields().map_err(|problem| problem.at(&place))?;
        for name in iter::once(&chosen.text).chain(&chosen.text_pair) {
            take_field(&mut others, name);
        }
        Ok(InputText { place, texts: (text, text_pair), others })
    }
}

impl Iterator for InputTexts {
    type Item = Result<InputText>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        Some(row.map_err(Into::into).and_then(|row| self.text_of(row)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    fn texts(name: &str, content: &[u8], columns: &Columns<'_>) -> Result<Vec<InputText>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a writable folder");
        InputTexts::open(&path, None, columns)?.collect()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn tables_and_json_give_texts_and_keep_the_other_fields() {
        let columns = Columns::default();
        let csv = b"id,sentence,label\n7,\"a, b\",x\n8,,y\n";
        let expected = [("a, b", json!({"id": "7", "label": "x"})), ("", json!({"id": "8", "label": "y"}))];
        let tsv = b"id\tsentence\tlabel\n7\ta, b\tx\n8\t\ty\n";
        for (name, content) in [
            ("a.csv", csv.to_vec()),
            ("a.csv.gz", gzip(csv)),
            ("a.tsv", tsv.to_vec()),
            ("a.tsv.gz", gzip(tsv)),
        ] {
            let found = texts(name, &content, &columns).expect("is readable");
            let found: Vec<_> =
                found.iter().map(|t| (t.texts.0.as_str(), Value::from(t.others.clone()))).collect();
            assert_eq!(found, expected, "{name}");
        }
        let found = texts("a.jsonl", b"{\"n\": [1], \"text\": \"t\"}\n", &columns).expect("is readable");
        assert_eq!((found[0].texts.0.as_str(), &found[0].others["n"]), ("t", &json!([1])));
        let content = br#"{"id": 7, "review": {"text": "t", "title": "s", "lang": "en"}}"#;
        let within =
            Columns { text: Some("review.text"), text_pair: Some("review.title"), ..Columns::default() };
        for name in ["a.jsonl", "a.json"] {
            let found = texts(name, content, &within).expect("is readable").remove(0);
            assert_eq!(found.texts, ("t".to_string(), Some("s".to_string())));
            assert_eq!(Value::from(found.others), json!({"id": 7, "review": {"lang": "en"}}), "{name}");
        }
    }

    #[test]
    fn plain_text_is_one_text_a_line_and_has_no_columns() {
        let found = texts("a.txt", b"text,label\r\n\n\"b\n", &Columns::default()).expect("is readable");
        let found: Vec<_> = found.iter().map(|t| t.texts.0.as_str()).collect();
        assert_eq!(found, ["text,label", "", "\"b"]);
        let columns = Columns { text: Some("title"), ..Columns::default() };
        let error = texts("a.txt", b"a\n", &columns).expect_err("has no columns").to_string();
        assert!(error.contains("a column is named, but plain text has none"), "{error}");
        let missing =
            texts("a.csv", b"headline\nx\n", &Columns::default()).expect_err("has none").to_string();
        assert!(missing.contains("a.csv:1: has no column `text`, `sentence` or `content`"), "{missing}");
    }

    #[test]
    fn a_field_with_a_name_of_the_output_is_kept_under_another() {
        let Value::Object(others) = json!({"id": 1, "label": "x", "score": 2, "input_score": 3}) else {
            panic!("is an object")
        };
        let Value::Object(output) = json!({"text": "", "label": "y", "score": 0.5}) else {
            panic!("is an object")
        };
        let text = InputText { place: String::new(), texts: (String::new(), None), others };
        assert_eq!(
            Value::from(text.others_beside(&output)),
            json!({"id": 1, "input_label": "x", "input_input_score": 2, "input_score": 3})
        );
    }
}
