//! How a file is read: its format, and the names of the fields that are wanted of it.

use crate::records::Dialect;
use config::DocumentUnit;

/// Format of a file, with the settings to turn it into documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Plain text.
    Text(DocumentUnit),
    /// One JSON object per line.
    Jsonl(Columns),
    /// A JSON array of objects, or a sequence of objects.
    Json(Columns),
    /// A table with a header.
    Table(Dialect, Columns),
    /// Apache Parquet.
    Parquet(Columns),
}

/// Names of the fields or columns that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) text: String,
    pub(super) title: Option<String>,
}
