//! Records of files: rows of tables (CSV, TSV) and Parquet, JSON objects and plain lines, each of bounded length
//! and with its line. The corpus makes documents of them, tasks make labelled examples.
//!
//! Gives no meaning to fields.

pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod json_elements;
pub(crate) mod lines;
pub(crate) mod nested;
pub(crate) mod parquet;
mod rows;
pub(crate) mod utf8;

pub(crate) use fields::Dialect;
pub use lines::{Line, Lines};
pub use nested::{Leaf, leaves, nested_paths, take_field};
pub use rows::{Row, RowError, RowFormat, Rows, Source, list, rows_of, take, text_of, within_objects};
pub use utf8::{conversion, encoding_hint};
