//! Rows of Parquet: each is an object with the number of the row.

use std::path::Path;

use anyhow::Result;

use crate::records::parquet::objects::ParquetObjects;
use crate::records::rows::{Fields, Row, RowError, Rows};

/// The rows of a Parquet file.
pub(super) struct ParquetRows(ParquetObjects);

impl ParquetRows {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self(ParquetObjects::open(path)?))
    }
}

impl Iterator for ParquetRows {
    type Item = Result<Row, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let object = self.0.advance().map_err(RowError::File).transpose()?;
        let line = self.0.rows();
        Some(object.map(|object| Row { line, header_line: line, fields: Fields::Json(object) }))
    }
}

impl Rows for ParquetRows {
    fn position_bytes(&self) -> u64 {
        self.0.position_bytes()
    }

    fn class_names(&self, field: &str) -> Option<Vec<String>> {
        self.0.class_names(field)
    }
}
