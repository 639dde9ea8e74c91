//! JSONL: one JSON object per line; one of its fields is the text.
//!
//! Blank lines are skipped.

use anyhow::Result;

use crate::corpus::read::assembly::{Assembly, Origin, Records};
use crate::corpus::read::json_object;
use crate::corpus::read::reading::Columns;
use crate::records::lines::{BYTE_ORDER_MARK, Lines};

/// Reads documents from JSONL.
pub(super) struct JsonLines {
    lines: Lines,
    columns: Columns,
}

impl JsonLines {
    pub(super) fn new(lines: Lines, columns: &Columns) -> Self {
        Self { lines, columns: columns.clone() }
    }
}

impl Records for JsonLines {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        let Some(line) = self.lines.advance()? else { return Ok(false) };
        // Concatenated files have a byte-order mark each.
        let bytes = line.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line.bytes);
        if line.is_too_long {
            out.reject_too_long(line.number, line.length, line.bytes);
        } else if !bytes.trim_ascii().is_empty() {
            let origin = Origin { line: line.number, whole: "the file", offset: line.offset };
            json_object::read(bytes, origin, 1, &self.columns, out)?;
        }
        Ok(true)
    }

    fn position_bytes(&self) -> u64 {
        self.lines.position_bytes()
    }
}
