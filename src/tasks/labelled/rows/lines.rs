//! Rows that are lines: JSONL and plain text.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;

use anyhow::Context;
use anyhow::Result;
use serde_json::Map;

use crate::error::Problem;
use crate::tasks::labelled::rows::Fields;
use crate::tasks::labelled::rows::Row;
use crate::tasks::labelled::rows::Source;

/// A longer line is no text to label.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// The field that holds a line of plain text.
const LINE_FIELD: &str = "text";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The rows of JSONL, one object a line, or of plain text; blank lines are passed over.
pub(super) struct LineRows {
    lines: Lines,
    is_json: bool,
}

impl LineRows {
    pub(super) fn json(source: Source) -> Self {
        Self { lines: Lines::of(source), is_json: true }
    }

    pub(super) fn text(source: Source) -> Self {
        Self { lines: Lines::of(source), is_json: false }
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let Some(bytes) = self.lines.next_line()? else { return Ok(None) };
        let (line, place) = (self.lines.line, self.lines.place());
        let object: Map<String, serde_json::Value> = if self.is_json {
            serde_json::from_slice(&bytes).map_err(|error| {
                Problem::new(format!("is not a JSON object on one line: {error}")).at(place)
            })?
        } else {
            let text = String::from_utf8(bytes).map_err(|error| {
                let byte = error.utf8_error().valid_up_to();
                Problem::new(format!("is not UTF-8 text (byte {byte} of the line)")).at(place)
            })?;
            Map::from_iter([(LINE_FIELD.to_string(), text.trim_end_matches(['\n', '\r']).into())])
        };
        Ok(Some(Row { line, header_line: line, fields: Fields::Json(object) }))
    }
}

impl Iterator for LineRows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

/// Lines that are not blank.
struct Lines {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    line: u64,
}

impl Lines {
    fn of(Source { name, bytes }: Source) -> Self {
        Self { name, reader: BufReader::new(bytes), line: 0 }
    }

    fn place(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let mut bytes = Vec::new();
            let mut limited = self.reader.by_ref().take(LINE_BYTES_MAX + 1);
            limited.read_until(b'\n', &mut bytes).with_context(|| format!("cannot read `{}`", self.name))?;
            self.line += 1;
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() as u64 > LINE_BYTES_MAX {
                let message = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return Err(Problem::new(message).at(self.place()).into());
            }
            if self.line == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
                bytes.drain(..BYTE_ORDER_MARK.len());
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some(bytes));
            }
        }
    }
}
