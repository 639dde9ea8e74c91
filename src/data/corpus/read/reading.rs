//! How a file is read: its format, and the names of the fields that are wanted of it.

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

/// Separator and quoting of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Separated by this byte or, with `None`, by the separator that the first line shows, usually a comma; a
    /// field that contains the separator, a quote or a newline is in quotes (RFC 4180).
    Csv(Option<u8>),
    /// Separated by tabs; quotes are ordinary characters.
    Tsv,
}
