//! Cuts CSV, TSV, JSONL and Parquet files, and plain text, into rows of named fields, each with the line on
//! which it begins; in Parquet that is the number of the row.
//!
//! Does not know which fields matter.

mod array;
mod lines;
mod parquet;
mod table;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use csv::ByteRecord;
use serde_json::Map;
use serde_json::Value;

use crate::corpus::Dialect;
use crate::corpus::conversion;
use crate::error::Problem;
use crate::fs;
use crate::fs::Kind;
use crate::fs::TextFile;
use crate::tasks::labelled::bad_rows::RowError;
use crate::tasks::labelled::rows::array::ArrayRows;
use crate::tasks::labelled::rows::lines::LineRows;
use crate::tasks::labelled::rows::parquet::ParquetRows;
use crate::tasks::labelled::rows::table::TableRows;

/// How an input is cut into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// Columns with a header line, between commas, or what the header has instead of them; fields may be
    /// quoted.
    Csv,
    /// Tab-separated columns with a header line; a quote is a character like any other.
    Tsv,
    /// One JSON object a line, or an array of them.
    Jsonl,
    /// One text a line, without a header; its field is `text`.
    Text,
    /// A word a line, in columns without a header; an empty line ends a sentence.
    Conll,
    /// Columns of values and of lists, each with a name.
    Parquet,
}

impl RowFormat {
    /// Told by the extension before that of the compression, which Parquet has inside; `None` for any other
    /// than those of tables, JSON, CoNLL and Parquet.
    pub fn of(path: &Path) -> Option<Self> {
        let plain = fs::without_compression(path);
        match plain.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("csv") => Some(Self::Csv),
            Some("tsv") => Some(Self::Tsv),
            Some("jsonl" | "ndjson" | "json") => Some(Self::Jsonl),
            Some("parquet") if plain == path => Some(Self::Parquet),
            Some("conll" | "conllu" | "iob" | "iob2" | "bio") => Some(Self::Conll),
            _ => None,
        }
    }
}

/// The longest line, and the longest row of a table: what is longer is no text to label.
const LISTS: &str = "lists are read as several labels (`problem_type: multi_label_classification`) or as words \
                     (`--task token-classify`)";
const ROW_BYTES_MAX: usize = 4 << 20;

/// A text to be cut into rows, and what errors call it.
pub(in crate::tasks) struct Source {
    /// The path, or `standard input`.
    pub(in crate::tasks) name: String,
    /// Decompressed.
    pub(super) text: TextFile,
    /// The kind of the file by its first bytes.
    kind: Kind,
}

impl Source {
    /// A plain or compressed file.
    pub(in crate::tasks) fn file(path: &Path) -> Result<Self> {
        let (text, kind) = fs::open_content(path)?;
        match kind {
            Kind::Tar | Kind::Warc | Kind::Parquet => Err(kind.mistaken(path, "one table of rows").into()),
            _ => Ok(Self { name: path.display().to_string(), text, kind }),
        }
    }

    /// What the process is given.
    pub(super) fn standard_input() -> Result<Self> {
        let (text, kind) = fs::standard_input(true)?;
        Ok(Self { name: "standard input".to_string(), text, kind })
    }

    /// An error for what wants texts and was given words.
    fn no_texts(&self) -> Problem {
        Problem::usage("is a file of words, and only a model that tags words reads them")
            .at(&self.name)
            .hint("give it texts: `--format text`, `csv`, `tsv` or `jsonl`")
    }

    /// The rows of the source.
    pub(in crate::tasks) fn rows(self, format: RowFormat) -> Result<Box<dyn Rows>> {
        let is_page = matches!(self.kind, Kind::Markup(_));
        if is_page && matches!(format, RowFormat::Csv | RowFormat::Tsv | RowFormat::Jsonl) {
            return Err(self.kind.mistaken(Path::new(&self.name), "a file of rows").into());
        }
        Ok(match format {
            RowFormat::Csv => Box::new(TableRows::open(self, Dialect::Csv(None))?),
            RowFormat::Tsv => Box::new(TableRows::open(self, Dialect::Tsv)?),
            RowFormat::Jsonl => {
                let Self { name, text, kind } = self;
                let (text, is_array) = text.begins_with(b'[', Path::new(&name))?;
                let source = Self { name, text, kind };
                if is_array { Box::new(ArrayRows::new(source)?) } else { Box::new(LineRows::json(source)) }
            }
            RowFormat::Text => Box::new(LineRows::text(self)),
            RowFormat::Conll => return Err(self.no_texts().into()),
            RowFormat::Parquet => {
                let problem = Problem::usage("Parquet is read from a file that is named `.parquet`");
                return Err(problem.at(&self.name).into());
            }
        })
    }
}

/// The rows of a file.
pub(in crate::tasks) fn rows_of(path: &Path, format: RowFormat) -> Result<Box<dyn Rows>> {
    match (fs::kind_of_file(path)?, format) {
        (Kind::Parquet, _) | (Kind::Text, RowFormat::Parquet) => Ok(Box::new(ParquetRows::open(path)?)),
        (kind, RowFormat::Parquet) => Err(kind.mistaken(path, "a Parquet file").into()),
        _ => Source::file(path)?.rows(format),
    }
}

/// The rows of a source, one after the other.
pub(in crate::tasks) trait Rows: Iterator<Item = Result<Row, RowError>> {
    /// Bytes of the file, as it lies on the disk, that have been read so far.
    fn position_bytes(&self) -> u64;

    /// The names that the file itself gives to the numbers of a field; most formats have none.
    fn class_names(&self, _field: &str) -> Option<Vec<String>> {
        None
    }
}

/// One row of a file.
#[derive(Debug)]
pub(in crate::tasks) struct Row {
    /// The line on which it begins, from 1.
    pub(in crate::tasks) line: u64,
    /// The line that names the columns: the header, or in JSONL the row itself.
    pub(super) header_line: u64,
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Table { header: Arc<Vec<String>>, record: ByteRecord },
    Json(Map<String, Value>),
}

impl Row {
    /// The names of the fields, in the order of the file.
    pub(super) fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.fields {
            Fields::Table { header, .. } => Box::new(header.iter().map(String::as_str)),
            Fields::Json(object) => Box::new(object.keys().map(String::as_str)),
        }
    }

    /// As [`Row::take`], for a number that may have a fraction.
    pub(super) fn take_number(&mut self, name: &str) -> Result<Option<String>, Problem> {
        if let Fields::Json(object) = &self.fields
            && let Some(Value::Number(number)) = object.get(name)
        {
            return Ok(Some(number.to_string()));
        }
        self.take(name)
    }

    /// Whether its names are those of a header, which all rows of the file share.
    pub(super) fn has_header(&self) -> bool {
        matches!(self.fields, Fields::Table { .. })
    }

    /// All fields as they are; those of a table are texts.
    pub(in crate::tasks) fn into_fields(self) -> Result<Map<String, Value>, Problem> {
        match self.fields {
            Fields::Json(object) => Ok(object),
            Fields::Table { header, record } => header
                .iter()
                .zip(record.iter())
                .map(|(name, bytes)| {
                    let text = std::str::from_utf8(bytes).map_err(|_| not_utf8(name, bytes))?;
                    Ok((name.clone(), text.into()))
                })
                .collect(),
        }
    }

    /// The items of a field that is a list, as only JSON and Parquet have them; `None` where it is none.
    pub(super) fn take_list(&mut self, name: &str) -> Option<Vec<Value>> {
        match &mut self.fields {
            Fields::Json(object) => match object.get_mut(name) {
                Some(Value::Array(items)) => Some(std::mem::take(items)),
                _ => None,
            },
            Fields::Table { .. } => None,
        }
    }

    /// Whether there is a field of this name.
    pub(in crate::tasks) fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Whether a field holds a list, as only JSON does.
    pub(super) fn is_list(&self, name: &str) -> bool {
        matches!(&self.fields, Fields::Json(object) if object.get(name).is_some_and(Value::is_array))
    }

    /// The value of a field as text; `None` where it is absent or null. Whole numbers and booleans are read
    /// as text.
    pub(super) fn take(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match &mut self.fields {
            Fields::Table { header, record } => {
                let Some(bytes) =
                    header.iter().position(|known| known == name).and_then(|column| record.get(column))
                else {
                    return Ok(None);
                };
                let text = std::str::from_utf8(bytes).map_err(|_| not_utf8(name, bytes))?;
                Ok(Some(text.to_string()))
            }
            Fields::Json(object) => {
                let value = object.get_mut(name).map_or(Value::Null, Value::take);
                let is_list = value.is_array();
                text_of(value).map_err(|is| {
                    let wrong =
                        Problem::new(format!("field `{name}` is {is}, text or a whole number is wanted"));
                    if is_list { wrong.hint(LISTS) } else { wrong }
                })
            }
        }
    }
}

/// The value of a field that the row must have; `None` where it is null.
pub(super) fn take(source: &str, row: &mut Row, name: &str) -> Result<Option<String>, Problem> {
    let place = format!("{source}:{}", row.line);
    if !row.has(name) {
        let there = list(row.names());
        return Err(Problem::new(format!("has no field `{name}`; there are {there}")).at(place));
    }
    row.take(name).map_err(|problem| problem.at(place))
}

/// Names, each in backticks.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A value as text; `None` where it is null, and what it is where it cannot be a name or a text.
pub(super) fn text_of(value: Value) -> Result<Option<String>, &'static str> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) if !number.is_f64() => Ok(Some(number.to_string())),
        Value::Bool(value) => Ok(Some(value.to_string())),
        other => Err(kind(&other)),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
        Value::Number(_) => "a number with a fraction",
        _ => "of another kind",
    }
}

fn not_utf8(name: &str, bytes: &[u8]) -> Problem {
    Problem::new(format!("column `{name}` is not UTF-8 text")).hint(conversion(bytes))
}

#[cfg(test)]
mod tests;
