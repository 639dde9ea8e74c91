//! Rows of a JSON array of objects.

use std::path::Path;

use anyhow::Result;

use crate::records::json::object_of;
use crate::records::json_elements::{Element, JsonElements};
use crate::records::rows::{Fields, ROW_BYTES_MAX, Row, RowError, Rows, Source};
use base::error::Problem;

/// The objects of a JSON array.
pub(super) struct ArrayRows {
    name: String,
    elements: JsonElements,
}

impl ArrayRows {
    pub(super) fn new(Source { name, text, .. }: Source) -> Result<Self> {
        let elements = JsonElements::new(text, Path::new(&name).into(), ROW_BYTES_MAX)?;
        Ok(Self { name, elements })
    }

    fn next_row(&mut self) -> Result<Option<Row>, RowError> {
        let Some(element) = self.elements.advance()? else { return Ok(None) };
        let Element { json, line, column, length, is_whole, .. } = element;
        if !is_whole {
            let message = "the file ends in the middle of this object".to_string();
            return Err(problem(&self.name, line, column, message).into());
        }
        if length > ROW_BYTES_MAX as u64 {
            let message = format!("the object is longer than {ROW_BYTES_MAX} bytes");
            return Err(problem(&self.name, line, column, message).into());
        }
        let object = object_of(json)
            .map_err(|e| problem(&self.name, line, column, format!("is not a JSON object: {e}")))?;
        Ok(Some(Row { line, header_line: line, fields: Fields::Json(object) }))
    }
}

fn problem(name: &str, line: u64, column: u64, message: String) -> Problem {
    Problem::new(message).at(format!("{name}:{line}:{column}"))
}

impl Iterator for ArrayRows {
    type Item = Result<Row, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

impl Rows for ArrayRows {
    fn position_bytes(&self) -> u64 {
        self.elements.position_bytes()
    }
}
