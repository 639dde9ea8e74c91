//! The input of `predict`: a file or standard input, read as texts or as sentences of words.

use std::path::Path;

use anyhow::Result;

use crate::tasks::labelled::read::Columns;
use crate::tasks::labelled::sentences::{ListFields, Sentence, SentenceColumns, Sentences};
use crate::tasks::labelled::texts::{InputText, InputTexts};
use data::records::RowFormat;

/// A file, or standard input, that is not opened yet.
#[derive(Debug, Clone, Copy)]
pub struct InputFile<'a> {
    /// Path of the file, or `-` for standard input.
    pub path: &'a Path,
    /// Format of the input; `None` selects it by the name of the file.
    pub format: Option<RowFormat>,
    /// Columns of the texts.
    pub columns: Columns<'a>,
    /// Column of the words in a CoNLL file.
    pub token_column: i64,
}

impl InputFile<'_> {
    /// Opens the input as texts.
    pub fn texts(&self) -> Result<InputTexts> {
        InputTexts::open(self.path, self.format, &self.columns)
    }

    /// Opens the input as sentences of words if it has words, else as texts. Words are one per line
    /// (`.conll`, and `.tsv` unless a column of texts is named), or lists in JSONL and Parquet.
    pub fn asked(&self) -> Result<Box<dyn Iterator<Item = Result<Asked>>>> {
        let columns = SentenceColumns {
            token: self.token_column,
            token_field: self.columns.text,
            encoding: self.columns.encoding,
            ..SentenceColumns::default()
        };
        let format = self.format.or_else(|| RowFormat::of(self.path));
        match format {
            Some(RowFormat::Tsv) if self.columns.text.is_none() => self.words(&columns),
            Some(RowFormat::Conll) => self.words(&columns),
            Some(RowFormat::Jsonl | RowFormat::Parquet) => {
                let texts = InputTexts::open(self.path, format, &self.columns)?;
                Ok(Box::new(Objects { texts, fields: ListFields::new(&columns) }))
            }
            _ => Ok(Box::new(self.texts()?.map(|text| Ok(Asked::Text(text?))))),
        }
    }

    fn words(&self, columns: &SentenceColumns<'_>) -> Result<Box<dyn Iterator<Item = Result<Asked>>>> {
        let is_standard = self.path == Path::new("-");
        let name = if is_standard { "standard input".to_string() } else { self.path.display().to_string() };
        let sentences = if is_standard {
            Sentences::of_standard_input(columns)?
        } else {
            Sentences::open(self.path, columns)?
        };
        Ok(Box::new(sentences.map(move |sentence| Ok(Asked::words(&name, sentence?)))))
    }
}

/// A text or a sentence of words to be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// A text, which is split into words.
    Text(InputText),
    /// Words. The texts of the row are empty; it has the other fields of the input.
    Words(Vec<String>, InputText),
}

impl Asked {
    fn words(name: &str, sentence: Sentence) -> Self {
        let Sentence { words, line, others, .. } = sentence;
        Self::Words(
            words,
            InputText { place: format!("{name}:{line}"), texts: (String::new(), None), others },
        )
    }

    /// The row of the input.
    pub fn row(&self) -> &InputText {
        match self {
            Self::Text(row) | Self::Words(_, row) => row,
        }
    }
}

/// Rows of JSONL or Parquet, each with a text or a list of words.
struct Objects {
    texts: InputTexts,
    fields: ListFields,
}

impl Iterator for Objects {
    type Item = Result<Asked>;

    fn next(&mut self) -> Option<Result<Asked>> {
        let row = match self.texts.next_row()? {
            Ok(row) => row,
            Err(error) => return Some(Err(error.into())),
        };
        if !row.is_list(self.fields.tokens()) {
            return Some(self.texts.text_of(row).map(Asked::Text));
        }
        let name = self.texts.name();
        Some(self.fields.sentence(name, row).map(|sentence| Asked::words(name, sentence)).map_err(Into::into))
    }
}
