//! Splits CSV, TSV, JSONL and Parquet files, and plain text, into rows of named fields. Each row has the line
//! on which it starts; in Parquet that is the number of the row.
//!
//! Does not know the meaning of fields.

mod array;
mod lines;
mod parquet;
mod table;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use csv::ByteRecord;
use serde_json::{Map, Value};

use crate::records::fields::Dialect;
use crate::records::nested::{field, field_mut, nested_paths, paths_within};
use crate::records::rows::array::ArrayRows;
use crate::records::rows::lines::LineRows;
use crate::records::rows::parquet::ParquetRows;
use crate::records::rows::table::TableRows;
use crate::records::utf8::encoding_hint;
use base::error::Problem;
use base::fs;
use base::fs::{Kind, TextEncoding, TextFile};

/// An error of one row or of the whole file.
#[derive(Debug)]
pub enum RowError {
    /// One row is wrong; the next one can be read.
    Row(Problem),
    /// The rest of the file cannot be read.
    File(anyhow::Error),
}

impl From<Problem> for RowError {
    fn from(problem: Problem) -> Self {
        Self::Row(problem)
    }
}

impl From<anyhow::Error> for RowError {
    fn from(error: anyhow::Error) -> Self {
        Self::File(error)
    }
}

impl From<RowError> for anyhow::Error {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Row(problem) => problem.into(),
            RowError::File(error) => error,
        }
    }
}

/// Format of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// Columns with a header line, separated by commas or by the separator that the header uses; fields may
    /// be quoted.
    Csv,
    /// Tab-separated columns with a header line; quotes are ordinary characters.
    Tsv,
    /// One JSON object per line, or an array of objects.
    Jsonl,
    /// One text per line, without a header; the field is called `text`.
    Text,
    /// One word per line, in columns without a header; an empty line ends a sentence.
    Conll,
    /// Named columns of values and of lists.
    Parquet,
}

impl RowFormat {
    /// Returns the format for the extension of a path, without that of a compression (Parquet compresses
    /// inside the file, so it has none). `None` for extensions other than those of tables, JSON, CoNLL and
    /// Parquet.
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

/// Hint for a list where a single value is wanted.
const LISTS: &str = "lists are read as several labels (`problem_type: multi_label_classification`) or as words \
                     (`--task token-classify`)";
/// Longest line, and longest row of a table; anything longer is not text to label.
const ROW_BYTES_MAX: usize = 4 << 20;

/// Decompressed text to be split into rows, with its name for errors.
pub struct Source {
    /// The path, or `standard input`.
    pub name: String,
    /// The decompressed text.
    pub text: TextFile,
    /// Kind of the file, from its first bytes.
    kind: Kind,
}

impl Source {
    /// Opens a plain or compressed file.
    pub fn file(path: &Path, encoding: Option<TextEncoding>) -> Result<Self> {
        let (text, kind) = fs::open_content(path, encoding)?;
        match kind {
            Kind::Tar | Kind::Warc | Kind::Parquet => Err(kind.mistaken(path, "one table of rows").into()),
            _ => Ok(Self { name: path.display().to_string(), text, kind }),
        }
    }

    /// Opens the standard input.
    pub fn standard_input(encoding: Option<TextEncoding>) -> Result<Self> {
        let (text, kind) = fs::standard_input(true, encoding)?;
        Ok(Self { name: "standard input".to_string(), text, kind })
    }

    /// The error for a file of words where texts are wanted.
    fn no_texts(&self) -> Problem {
        Problem::usage("is a file of words, and only a model that tags words reads them")
            .at(&self.name)
            .hint(
                "`finetune --task token-classify` trains on it; `predict` takes texts with `--format text`, `csv`, \
                 `tsv` or `jsonl`",
            )
    }

    /// Splits the source into rows.
    pub fn rows(self, format: RowFormat) -> Result<Box<dyn Rows>> {
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

/// Opens the rows of a file, whose text is converted from `encoding` if one is given.
pub fn rows_of(path: &Path, format: RowFormat, encoding: Option<TextEncoding>) -> Result<Box<dyn Rows>> {
    match (fs::kind_of_file(path)?, format) {
        (Kind::Parquet, _) | (Kind::Text, RowFormat::Parquet) => Ok(Box::new(ParquetRows::open(path)?)),
        (kind, RowFormat::Parquet) => Err(kind.mistaken(path, "a Parquet file").into()),
        _ => Source::file(path, encoding)?.rows(format),
    }
}

/// Iterator over the rows of a source.
pub trait Rows: Iterator<Item = Result<Row, RowError>> {
    /// Bytes of the (possibly compressed) file that have been read so far.
    fn position_bytes(&self) -> u64;

    /// The names that the file itself gives to the numbers in a field; `None` in most formats.
    fn class_names(&self, _field: &str) -> Option<Vec<String>> {
        None
    }
}

/// One row of a file. In JSON the name of a field may be a path into objects: `review.text` is the field
/// `text` of the object `review`, unless a field has that whole name.
#[derive(Debug)]
pub struct Row {
    /// The line on which the row starts, from 1.
    pub line: u64,
    /// The line that names the columns: the header; in JSONL the row itself.
    pub header_line: u64,
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Table { header: Arc<Vec<String>>, record: ByteRecord },
    Json(Map<String, Value>),
}

impl Row {
    /// The names of the fields, in the order of the file.
    pub fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.fields {
            Fields::Table { header, .. } => Box::new(header.iter().map(String::as_str)),
            Fields::Json(object) => Box::new(object.keys().map(String::as_str)),
        }
    }

    /// As [`Row::take`], but for a number that may have a fraction.
    pub fn take_number(&mut self, name: &str) -> Result<Option<String>, Problem> {
        if let Fields::Json(object) = &self.fields
            && let Some(Value::Number(number)) = field(object, name)
        {
            return Ok(Some(number.to_string()));
        }
        self.take(name)
    }

    /// True if the names come from a header that all rows of the file share.
    pub fn has_header(&self) -> bool {
        matches!(self.fields, Fields::Table { .. })
    }

    /// Returns all fields unchanged; those of a table are strings.
    pub fn into_fields(self) -> Result<Map<String, Value>, Problem> {
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

    /// Takes the items of a list; `None` if the field is not a list. Only JSON and Parquet have lists.
    pub fn take_list(&mut self, name: &str) -> Option<Vec<Value>> {
        match &mut self.fields {
            Fields::Json(object) => match field_mut(object, name) {
                Some(Value::Array(items)) => Some(std::mem::take(items)),
                _ => None,
            },
            Fields::Table { .. } => None,
        }
    }

    /// True if there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        match &self.fields {
            Fields::Table { header, .. } => header.iter().any(|known| known == name),
            Fields::Json(object) => field(object, name).is_some(),
        }
    }

    /// The paths of the first values within objects, which only JSON has.
    pub fn nested_paths(&self) -> Vec<String> {
        match &self.fields {
            Fields::Table { .. } => Vec::new(),
            Fields::Json(object) => nested_paths(object),
        }
    }

    /// True if the field is a list. Only JSON and Parquet have lists.
    pub fn is_list(&self, name: &str) -> bool {
        matches!(&self.fields, Fields::Json(object) if field(object, name).is_some_and(Value::is_array))
    }

    /// Takes the value of a field as text; `None` if it is absent or null. Integers and booleans become text.
    pub fn take(&mut self, name: &str) -> Result<Option<String>, Problem> {
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
                let value = field_mut(object, name).map_or(Value::Null, Value::take);
                let hint = match &value {
                    Value::Array(_) => Some(LISTS.to_string()),
                    Value::Object(inner) => within_objects(&paths_within(name, inner)),
                    _ => None,
                };
                text_of(value).map_err(|is| {
                    let mut wrong =
                        Problem::new(format!("field `{name}` is {is}, text or a whole number is wanted"));
                    wrong.hint = hint;
                    wrong
                })
            }
        }
    }
}

/// Takes the value of a field that the row must have; `None` if it is null.
pub fn take(source: &str, row: &mut Row, name: &str) -> Result<Option<String>, Problem> {
    let place = format!("{source}:{}", row.line);
    if !row.has(name) {
        let there = list(row.names());
        let mut missing = Problem::new(format!("has no field `{name}`; there are {there}")).at(place);
        missing.hint = within_objects(&row.nested_paths());
        return Err(missing);
    }
    row.take(name).map_err(|problem| problem.at(place))
}

/// Joins names, each in backticks, with commas.
pub fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The hint that lists fields within objects; `None` without such fields.
pub fn within_objects(paths: &[String]) -> Option<String> {
    let listed = list(paths.iter().map(String::as_str));
    (!paths.is_empty()).then(|| format!("fields within objects are named by paths: {listed}"))
}

/// Converts a value to text; `None` for null. The error describes a value that cannot be a name or a text.
pub fn text_of(value: Value) -> Result<Option<String>, &'static str> {
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
    Problem::new(format!("column `{name}` is not UTF-8 text")).hint(encoding_hint(bytes))
}

#[cfg(test)]
mod tests;
