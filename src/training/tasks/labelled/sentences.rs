//! Sentences of words, with or without tags, from CoNLL columns, JSONL and Parquet.
//!
//! A bad line is an error that names it; the sentences after it can still be read. `tags` interprets the
//! tags.

mod conll;

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::tasks::labelled::memory::BLOCK_BYTES;
use crate::tasks::labelled::sentences::conll::ColumnLines;
use base::error::Problem;
use base::fs;
use base::fs::TextEncoding;
use data::records::{
    Row, RowError, RowFormat, Rows, Source, nested_paths, rows_of, take_field, within_objects,
};

/// Default field (JSONL) or column (Parquet) of the words.
const TOKEN_FIELD: &str = "tokens";

/// Default fields or columns of the tags, in order of preference.
const TAG_FIELDS: [&str; 2] = ["tags", "ner_tags"];

/// The hint for numbers instead of tags.
const NAME_TAGS: &str = "name all tags in the order that the numbers of this file have: `data.labels`";

/// Longest sentence in words. In a longer one the empty line that ends a sentence is missing.
const WORDS_MAX: usize = 1 << 20;

/// A sentence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sentence {
    /// The words, none of them empty; at least one if tags were requested.
    pub words: Vec<String>,
    /// The tag of each word; empty if tags were not requested.
    pub tags: Vec<String>,
    /// The line of each word, from 1.
    pub lines: Vec<u64>,
    /// The line on which the sentence starts.
    pub line: u64,
    /// The other fields of a JSON object.
    pub others: Map<String, Value>,
}

impl Sentence {
    /// Approximate memory of the sentence.
    pub(super) fn memory_bytes(&self) -> u64 {
        let texts = self.words.iter().chain(&self.tags);
        let blocks: usize = texts.map(|text| text.len() + BLOCK_BYTES + size_of::<String>()).sum();
        (size_of::<Self>() + blocks + self.lines.len() * size_of::<u64>()) as u64
    }
}

/// The columns or fields of the words and the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentenceColumns<'a> {
    /// Column of the words in a CoNLL file: 1 is the first, -1 the last; never 0.
    pub token: i64,
    /// Column of the tags in a CoNLL file, numbered as `token`.
    pub tag: i64,
    /// Field of the words in JSONL; `tokens` if `None`.
    pub token_field: Option<&'a str>,
    /// Field of the tags; `tags` or `ner_tags` if `None`.
    pub tag_field: Option<&'a str>,
    /// Names of the tags 0, 1, ... for lists of numbers, unless the file names them itself. Without either,
    /// numbers are an error, since the order of a model's tags is not that of the file.
    pub tag_names: &'a [String],
    /// Encoding of the file; UTF-8 if `None`.
    pub encoding: Option<TextEncoding>,
    /// True if each word must have a tag; otherwise tags are not read at all.
    pub tagged: bool,
}

impl Default for SentenceColumns<'_> {
    fn default() -> Self {
        Self {
            token: 1,
            tag: -1,
            token_field: None,
            tag_field: None,
            tag_names: &[],
            encoding: None,
            tagged: false,
        }
    }
}

/// Iterator over the sentences of a file.
pub struct Sentences {
    form: Form,
}

enum Form {
    Columns(ColumnLines),
    Lists { name: String, rows: Box<dyn Rows>, fields: ListFields },
}

impl Sentences {
    /// Opens a plain or compressed file. `.jsonl` (`.ndjson`, `.json`) has an object per line with a list of
    /// words and a list of tags, `.parquet` has a column for each of the two. Any other file has a word per
    /// line in columns, as in CoNLL's shared tasks.
    pub fn open(path: &Path, columns: &SentenceColumns<'_>) -> Result<Self> {
        let plain = fs::without_compression(path);
        let extension = plain.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        if extension == "csv" {
            return Err(Problem::new(format!("tagged words are not read from `.{extension}`"))
                .at(path.display())
                .hint("write a word and its tag a line (`.conll`), or `.jsonl` with `tokens` and `tags`")
                .into());
        }
        let form = if let Some(format @ (RowFormat::Jsonl | RowFormat::Parquet)) = RowFormat::of(path) {
            let rows = rows_of(path, format, columns.encoding)?;
            let fields = ListFields::new(columns).named_by(rows.as_ref());
            Form::Lists { name: path.display().to_string(), rows, fields }
        } else {
            Form::Columns(ColumnLines::new(Source::file(path, columns.encoding)?, columns))
        };
        Ok(Self { form })
    }

    /// Opens the standard input, in columns.
    pub fn of_standard_input(columns: &SentenceColumns<'_>) -> Result<Self> {
        let source = Source::standard_input(columns.encoding)?;
        Ok(Self { form: Form::Columns(ColumnLines::new(source, columns)) })
    }

    /// Bytes of the (possibly compressed) file that have been read so far.
    pub(super) fn position_bytes(&self) -> u64 {
        match &self.form {
            Form::Columns(lines) => lines.position_bytes(),
            Form::Lists { rows, .. } => rows.position_bytes(),
        }
    }
}

impl Iterator for Sentences {
    type Item = Result<Sentence, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.form {
            Form::Columns(lines) => lines.next_sentence().transpose(),
            Form::Lists { name, rows, fields } => {
                let row = rows.next()?;
                Some(row.and_then(|row| Ok(fields.sentence(name, row)?)))
            }
        }
    }
}

/// The names of the lists in an object.
#[derive(Debug, Clone)]
pub(super) struct ListFields {
    tokens: String,
    tags: Option<String>,
    tag_names: Vec<String>,
    tagged: bool,
}

impl ListFields {
    pub(super) fn new(columns: &SentenceColumns<'_>) -> Self {
        let tokens = columns.token_field.unwrap_or(TOKEN_FIELD).to_string();
        let tags = columns.tag_field.map(str::to_string);
        Self { tokens, tags, tag_names: columns.tag_names.to_vec(), tagged: columns.tagged }
    }

    /// Uses the names of tags that the file gives itself, if it does.
    fn named_by(mut self, rows: &dyn Rows) -> Self {
        let fields = self.tags.as_deref().map_or(TAG_FIELDS.to_vec(), |field| vec![field]);
        if let Some(names) = fields.into_iter().find_map(|field| rows.class_names(field)) {
            self.tag_names = names;
        }
        self
    }

    /// The field of the words.
    pub(super) fn tokens(&self) -> &str {
        &self.tokens
    }

    /// Makes the sentence of a row; `name` is the source, for errors.
    pub(super) fn sentence(&self, name: &str, row: Row) -> Result<Sentence, Problem> {
        let line = row.line;
        self.sentence_on(row).map_err(|problem| problem.at(format!("{name}:{line}")))
    }

    fn sentence_on(&self, row: Row) -> Result<Sentence, Problem> {
        let line = row.line;
        let mut fields = row.into_fields()?;
        let words = list(&mut fields, &self.tokens, &[])?;
        if let Some(empty) = words.iter().position(String::is_empty) {
            return Err(Problem::new(format!("word {} of `{}` is empty", empty + 1, self.tokens)));
        }
        let mut tags = Vec::new();
        if self.tagged {
            let usual =
                TAG_FIELDS.into_iter().find(|field| fields.contains_key(*field)).unwrap_or(TAG_FIELDS[0]);
            let field = self.tags.as_deref().unwrap_or(usual);
            tags = list(&mut fields, field, &self.tag_names)?;
            if words.is_empty() {
                return Err(Problem::new("the sentence has no words").hint("take the line out"));
            }
            if tags.len() != words.len() {
                let counts = format!(
                    "{} words in `{}` and {} tags in `{field}`",
                    words.len(),
                    self.tokens,
                    tags.len()
                );
                return Err(Problem::new(counts).hint("each word needs a tag"));
            }
        }
        Ok(Sentence { lines: vec![line; words.len()], words, tags, line, others: fields })
    }
}

/// Takes a list of texts out of an object; numbers are replaced by the entries of `names`, if there are any.
fn list(fields: &mut Map<String, Value>, name: &str, names: &[String]) -> Result<Vec<String>, Problem> {
    match take_field(fields, name) {
        None => {
            let there: Vec<String> = fields.keys().map(|key| format!("`{key}`")).collect();
            let message = format!("has no field `{name}`; there are {}", there.join(", "));
            let hint = "name the lists with `text_column` (words) and `label_column` (tags)";
            Err(Problem::new(message).hint(match within_objects(&nested_paths(fields)) {
                Some(paths) => format!("{hint}; {paths}"),
                None => hint.to_string(),
            }))
        }
        Some(Value::Array(values)) => values
            .into_iter()
            .enumerate()
            .map(|(place, value)| match value {
                Value::String(text) => Ok(text),
                Value::Number(number) if names.is_empty() => {
                    Err(list_wanted(name, &format!("a list with the number {number}")).hint(NAME_TAGS))
                }
                Value::Number(number) => {
                    let named = number.as_u64().and_then(|id| names.get(usize::try_from(id).ok()?));
                    named.cloned().ok_or_else(|| {
                        let most = names.len() - 1;
                        let message = format!("item {} of `{name}` is {number}", place + 1);
                        Problem::new(format!("{message}, and the tags have the numbers 0 to {most}"))
                            .hint(NAME_TAGS)
                    })
                }
                _ => Err(list_wanted(name, &format!("a list whose item {} is no text", place + 1))),
            })
            .collect(),
        Some(Value::String(_)) => Err(list_wanted(name, "a text")),
        Some(_) => Err(list_wanted(name, "no list")),
    }
}

fn list_wanted(name: &str, is: &str) -> Problem {
    Problem::new(format!("field `{name}` is {is}, a list of texts is wanted"))
}

/// The error for a sentence that does not end.
fn too_many_words() -> Problem {
    Problem::new(format!("the sentence has more than {WORDS_MAX} words"))
        .hint("an empty line ends a sentence")
}

#[cfg(test)]
mod tests;
