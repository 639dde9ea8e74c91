//! The documents of one file: opens the reader of its format and hands on what that puts together.
//!
//! It knows no format itself.

use anyhow::Result;

use crate::corpus::Item;
use crate::corpus::read::Limits;
use crate::corpus::read::assembly::Assembly;
use crate::corpus::read::files::Reading;
use crate::corpus::read::files::SourceFile;
use crate::corpus::read::json_array::JsonElements;
use crate::corpus::read::jsonl::JsonLines;
use crate::corpus::read::parquet::ParquetRows;
use crate::corpus::read::table::TableRows;
use crate::corpus::read::text::TextLines;

/// What the reader of a format does.
pub(super) trait Records {
    /// Reads one record (a line, an object, a row) into `out`, which may finish any number of documents;
    /// false at the end of the file, when everything has been finished.
    fn advance(&mut self, out: &mut Assembly) -> Result<bool>;

    /// Bytes of the file, as it lies on the disk, that have been read so far.
    fn position_bytes(&self) -> u64;
}

/// The documents of one file.
pub(super) struct FileDocuments {
    records: Box<dyn Records + Send>,
    assembly: Assembly,
    finished: bool,
}

impl FileDocuments {
    pub(super) fn open(file: &SourceFile, limits: Limits) -> Result<Self> {
        let records: Box<dyn Records + Send> = match &file.reading {
            Reading::Text(unit) => Box::new(TextLines::open(file, *unit, limits)?),
            Reading::Jsonl(columns) => Box::new(JsonLines::open(file, columns, limits)?),
            Reading::Json(columns) => Box::new(JsonElements::open(file, columns, limits)?),
            Reading::Table(dialect, columns) => Box::new(TableRows::open(file, *dialect, columns, limits)?),
            Reading::Parquet(columns) => Box::new(ParquetRows::open(file, columns)?),
        };
        Ok(Self { records, assembly: Assembly::new(file, limits), finished: false })
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.records.position_bytes()
    }

    /// The next item; `None` after the last.
    pub(super) fn advance(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.assembly.take() {
                return Ok(Some(item));
            }
            if self.finished {
                return Ok(None);
            }
            self.finished = !self.records.advance(&mut self.assembly)?;
        }
    }
}
