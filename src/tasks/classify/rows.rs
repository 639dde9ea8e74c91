//! Cuts CSV, TSV and JSONL files into rows of named fields, each with the line on which it begins.
//!
//! Does not know which fields matter.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use csv::ByteRecord;
use csv::ReaderBuilder;
use csv::Terminator;
use serde_json::Map;
use serde_json::Value;

use crate::error::Problem;
use crate::fs;

/// Put behind a table. The newline ends a last line without one, so that lines can be counted back from the
/// end of a row (the reader's own positions are those before blank lines, and halfway through a CRLF). The
/// zero byte is a row of its own, unless a quote is still open.
const END: &[u8] = b"\n\0";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One row of a file.
#[derive(Debug)]
pub(super) struct Row {
    /// The line on which it begins, from 1.
    pub(super) line: u64,
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

    /// Whether there is a field of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
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
                let text = std::str::from_utf8(bytes).map_err(|_| not_utf8(name))?;
                Ok(Some(text.to_string()))
            }
            Fields::Json(object) => match object.get_mut(name).map(Value::take) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(text)) => Ok(Some(text)),
                Some(Value::Number(number)) if !number.is_f64() => Ok(Some(number.to_string())),
                Some(Value::Bool(value)) => Ok(Some(value.to_string())),
                Some(other) => Err(Problem::new(format!(
                    "field `{name}` is {}, text or a whole number is wanted",
                    kind(&other)
                ))),
            },
        }
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

fn not_utf8(name: &str) -> Problem {
    Problem::new(format!("column `{name}` is not UTF-8 text"))
        .hint("convert the file, such as with `iconv -f latin1 -t utf-8`")
}

/// The rows of a CSV or TSV file.
pub(super) struct TableRows {
    path: PathBuf,
    reader: csv::Reader<Box<dyn Read>>,
    header: Arc<Vec<String>>,
}

impl TableRows {
    /// A CSV file: fields may be quoted.
    pub(super) fn csv(path: &Path) -> Result<Self> {
        Self::open(path, ReaderBuilder::new().delimiter(b','))
    }

    /// A TSV file: quotes are ordinary characters.
    pub(super) fn tsv(path: &Path) -> Result<Self> {
        Self::open(path, ReaderBuilder::new().delimiter(b'\t').quoting(false))
    }

    fn open(path: &Path, builder: &mut ReaderBuilder) -> Result<Self> {
        let bytes: Box<dyn Read> = Box::new(fs::open_text(path)?.chain(END));
        let reader =
            builder.has_headers(false).flexible(true).terminator(Terminator::Any(b'\n')).from_reader(bytes);
        let mut rows = Self { path: path.to_path_buf(), reader, header: Arc::new(Vec::new()) };
        let Some((header, line)) = rows.next_record()? else {
            return Err(Problem::new("is empty, a line with the names of the columns is wanted")
                .at(path.display())
                .into());
        };
        rows.header = Arc::new(rows.column_names(&header, line)?);
        Ok(rows)
    }

    fn column_names(&self, header: &ByteRecord, line: u64) -> Result<Vec<String>> {
        let place = format!("{}:{line}", self.path.display());
        let mut names: Vec<String> = Vec::new();
        for field in header {
            let name = std::str::from_utf8(field)
                .map_err(|_| Problem::new("the names of the columns are not UTF-8 text").at(&place))?;
            let name = name.trim();
            if names.iter().any(|known| known == name) {
                return Err(Problem::new(format!("column `{name}` is there twice")).at(place).into());
            }
            names.push(name.to_string());
        }
        Ok(names)
    }

    /// The next line that is not blank, without the `\r` of a CRLF, and the line on which it begins.
    fn next_record(&mut self) -> Result<Option<(ByteRecord, u64)>> {
        let mut record = ByteRecord::new();
        loop {
            let more = self
                .reader
                .read_byte_record(&mut record)
                .with_context(|| format!("cannot read `{}`", self.path.display()))?;
            if !more || &record == [b"\0"].as_slice() {
                return Ok(None);
            }
            let newlines = record.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
            let end = self.reader.position().line();
            if record.iter().next_back().is_some_and(|last| last.ends_with(END)) {
                let place = format!("{}:{}", self.path.display(), end - newlines);
                return Err(Problem::new("a quote in this row is never closed")
                    .at(place)
                    .hint("double a quote that belongs to the text")
                    .into());
            }
            let line = end - 1 - newlines;
            if let Some(last) = record.iter().next_back().and_then(|last| last.strip_suffix(b"\r")) {
                let mut fields: Vec<&[u8]> = record.iter().collect();
                fields.pop();
                record = fields.into_iter().chain([last]).collect();
            }
            if record.len() > 1 || record.get(0).is_some_and(|field| !field.is_empty()) {
                return Ok(Some((record, line)));
            }
        }
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let Some((record, line)) = self.next_record()? else {
            return Ok(None);
        };
        if record.len() != self.header.len() {
            let message = format!(
                "{} here, but {} named in the first line",
                count(record.len(), "field is", "fields are"),
                self.header.len()
            );
            return Err(Problem::new(message)
                .at(format!("{}:{line}", self.path.display()))
                .hint("look for a quote left open, or a separator inside a text that is not quoted")
                .into());
        }
        Ok(Some(Row {
            line,
            header_line: 1,
            fields: Fields::Table { header: Arc::clone(&self.header), record },
        }))
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

impl Iterator for TableRows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

/// The rows of a JSONL file: one object a line, blank lines skipped.
pub(super) struct JsonRows {
    path: PathBuf,
    reader: BufReader<fs::TextFile>,
    line: u64,
}

impl JsonRows {
    /// Opens the file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), reader: BufReader::new(fs::open_text(path)?), line: 0 })
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = self
                .reader
                .read_until(b'\n', &mut bytes)
                .with_context(|| format!("cannot read `{}`", self.path.display()))?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            let content =
                if self.line == 1 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes) } else { &bytes };
            if content.trim_ascii().is_empty() {
                continue;
            }
            let object: Map<String, Value> = serde_json::from_slice(content).map_err(|error| {
                Problem::new(format!("is not a JSON object on one line: {error}")).at(format!(
                    "{}:{}",
                    self.path.display(),
                    self.line
                ))
            })?;
            return Ok(Some(Row { line: self.line, header_line: self.line, fields: Fields::Json(object) }));
        }
    }
}

impl Iterator for JsonRows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}
