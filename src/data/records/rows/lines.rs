//! Rows that are lines: JSONL and plain text.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::records::json::object_of;
use crate::records::lines::{Line, Lines};
use crate::records::rows::{Fields, ROW_BYTES_MAX, Row, RowError, Rows, Source};
use crate::records::utf8::encoding_hint;
use base::error::Problem;

/// The name of the field for a line of plain text.
const LINE_FIELD: &str = "text";

/// The rows of JSONL (one object per line, blank lines skipped), or of plain text, where a blank line is an
/// empty text, so that each line gets an answer.
pub(super) struct LineRows {
    name: String,
    lines: Lines,
    is_json: bool,
}

impl LineRows {
    pub(super) fn json(source: Source) -> Self {
        Self::open(source, true)
    }

    pub(super) fn text(source: Source) -> Self {
        Self::open(source, false)
    }

    fn open(Source { name, text, .. }: Source, is_json: bool) -> Self {
        Self { lines: Lines::of(text, Path::new(&name).into(), ROW_BYTES_MAX), name, is_json }
    }

    fn next_row(&mut self) -> Result<Option<Row>, RowError> {
        while let Some(line) = self.lines.advance()? {
            if self.is_json && line.bytes.trim_ascii().is_empty() && !line.is_too_long {
                continue;
            }
            let number = line.number;
            let object =
                fields_of(&line, self.is_json).map_err(|p| p.at(format!("{}:{number}", self.name)))?;
            return Ok(Some(Row { line: number, header_line: number, fields: Fields::Json(object) }));
        }
        Ok(None)
    }
}

fn fields_of(line: &Line<'_>, is_json: bool) -> Result<Map<String, Value>, Problem> {
    if line.is_too_long {
        return Err(Problem::new(format!("the line is longer than {ROW_BYTES_MAX} bytes")));
    }
    // Concatenated files contain the byte-order marks of all of them.
    let bytes = line.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line.bytes);
    if is_json {
        return object_of(bytes).map_err(|e| Problem::new(format!("is not a JSON object on one line: {e}")));
    }
    let text = std::str::from_utf8(line.bytes).map_err(|e| {
        Problem::new(format!("is not UTF-8 text (byte {} of the line)", e.valid_up_to()))
            .hint(encoding_hint(line.bytes))
    })?;
    Ok(Map::from_iter([(LINE_FIELD.to_string(), text.into())]))
}

impl Iterator for LineRows {
    type Item = Result<Row, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

impl Rows for LineRows {
    fn position_bytes(&self) -> u64 {
        self.lines.position_bytes()
    }
}
