//! Chooses the reader of a text by its format: of a whole file, or of a member of an archive.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::corpus::read::Limits;
use crate::corpus::read::assembly::Records;
use crate::corpus::read::json_array::JsonRows;
use crate::corpus::read::jsonl::JsonLines;
use crate::corpus::read::reading::Reading;
use crate::corpus::read::table::TableRows;
use crate::corpus::read::text::TextLines;
use crate::records::json_elements::JsonElements;
use crate::records::lines::Lines;
use base::fs::{Kind, TextFile};

/// Returns the reader of a text: a whole file, or a member of an archive. `kind` was detected by its first
/// bytes; errors call it `path`.
pub(super) fn text_records(
    text: TextFile,
    kind: Kind,
    path: &Arc<Path>,
    reading: &Reading,
    limits: Limits,
) -> Result<Box<dyn Records + Send>> {
    if matches!(kind, Kind::Tar | Kind::Warc | Kind::Parquet) {
        let problem = kind.mistaken(path, "text");
        return Err(problem.hint("unpack or decompress it, and name the files in it").into());
    }
    if let (Kind::Markup(_), Reading::Jsonl(_) | Reading::Json(_) | Reading::Table(..)) = (kind, reading) {
        return Err(kind.mistaken(path, "a file of records").into());
    }
    let line_bytes = limits.line_bytes;
    let (text, is_array) = match reading {
        Reading::Jsonl(_) => text.begins_with(b'[', path)?,
        _ => (text, false),
    };
    Ok(match reading {
        Reading::Text(unit) => Box::new(TextLines::new(Lines::of(text, Arc::clone(path), line_bytes), *unit)),
        Reading::Jsonl(columns) | Reading::Json(columns)
            if is_array || matches!(reading, Reading::Json(_)) =>
        {
            Box::new(JsonRows::new(JsonElements::new(text, Arc::clone(path), line_bytes)?, columns))
        }
        Reading::Jsonl(columns) | Reading::Json(columns) => {
            Box::new(JsonLines::new(Lines::of(text, Arc::clone(path), line_bytes), columns))
        }
        Reading::Table(dialect, columns) => Box::new(TableRows::open(text, path, *dialect, columns, limits)?),
        Reading::Parquet(_) => return Err(kind.mistaken(path, "a Parquet file").into()),
    })
}
