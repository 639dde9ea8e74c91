//! Records of files: tables (CSV, TSV), JSON, Parquet and plain lines, of bounded length, each with its line. The corpus
//! takes its documents from them, tasks their labelled rows.
//!
//! What a field means is not known here.

pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod json_elements;
pub(crate) mod lines;
pub(crate) mod parquet;
mod rows;
pub(crate) mod utf8;

pub(crate) use fields::Dialect;
pub use lines::{Line, Lines};
pub use rows::{Row, RowError, RowFormat, Rows, Source, list, rows_of, take, text_of};
pub use utf8::conversion;
