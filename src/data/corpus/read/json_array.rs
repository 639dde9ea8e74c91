//! Documents of a JSON array, or of a sequence of objects.

use anyhow::Result;

use crate::corpus::read::assembly::{Assembly, Origin, Records};
use crate::corpus::read::json_object;
use crate::corpus::read::reading::Columns;
use crate::records::json_elements::{Element, JsonElements};
use base::error::Problem;

/// Reads documents from a JSON array.
pub(super) struct JsonRows {
    elements: JsonElements,
    columns: Columns,
}

impl JsonRows {
    pub(super) fn new(elements: JsonElements, columns: &Columns) -> Self {
        Self { elements, columns: columns.clone() }
    }
}

impl Records for JsonRows {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        let max_bytes = self.elements.bytes_max;
        let Some(element) = self.elements.advance()? else { return Ok(false) };
        let Element { json, line, column, offset, length, is_whole } = element;
        if !is_whole {
            let problem = Problem::new("the file ends in the middle of an object")
                .at(format!("{}:{column}", out.location(line)))
                .hint("is the file whole? `on_bad_record: skip` leaves the object out");
            out.bad_record(line, problem, length, json)?;
        } else if length > max_bytes as u64 {
            out.reject_too_long(line, length, json);
        } else {
            let origin = Origin { line, whole: "the file", offset };
            json_object::read(json, origin, column, &self.columns, out)?;
        }
        Ok(true)
    }

    fn position_bytes(&self) -> u64 {
        self.elements.position_bytes()
    }
}
