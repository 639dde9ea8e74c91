//! The documents of one file: opens the reader for its format, and returns the items that it assembles.
//!
//! The formats themselves are implemented in other files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::corpus::Item;
use crate::corpus::read::Limits;
use crate::corpus::read::archive::TarMembers;
use crate::corpus::read::assembly::Assembly;
use crate::corpus::read::files::{Reading, SourceFile};
use crate::corpus::read::json_array::{JsonElements, JsonRows};
use crate::corpus::read::jsonl::JsonLines;
use crate::corpus::read::lines::Lines;
use crate::corpus::read::parquet::ParquetRows;
use crate::corpus::read::table::TableRows;
use crate::corpus::read::text::TextLines;
use crate::corpus::read::warc::WarcRecords;
use base::fs;
use base::fs::{Kind, Progress, TextFile};

/// Reader of a format.
pub(super) trait Records {
    /// Reads one record (a line, an object, a row) into `out`, which may finish any number of documents.
    /// Returns false at the end of the file, when all documents are finished.
    fn advance(&mut self, out: &mut Assembly) -> Result<bool>;

    /// Returns the number of bytes of the file, as stored on disk, that have been read so far.
    fn position_bytes(&self) -> u64;
}

/// Reads the documents of one file.
pub(super) struct FileDocuments {
    records: Box<dyn Records + Send>,
    assembly: Assembly,
    finished: bool,
    /// Absent if a file is not read sequentially.
    progress: Option<Arc<Progress>>,
}

impl FileDocuments {
    pub(super) fn open(file: &SourceFile, limits: Limits) -> Result<Self> {
        let assembly = Assembly::new(file, limits);
        if let Reading::Parquet(columns) = &file.reading {
            let records = Box::new(ParquetRows::open(file, columns)?);
            return Ok(Self { records, assembly, finished: false, progress: None });
        }
        let (text, kind) = file.open()?;
        let progress = Some(text.progress());
        let records: Box<dyn Records + Send> = match kind {
            Kind::Tar => Box::new(TarMembers::new(text, file, limits)),
            Kind::Warc => Box::new(WarcRecords::new(text, file, limits)),
            _ => text_records(text, kind, &file.path, &file.reading, limits)?,
        };
        Ok(Self { records, assembly, finished: false, progress })
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.records.position_bytes()
    }

    /// Returns a hash of the whole file, which must have been read to its end; `None` if it was not read
    /// completely.
    pub(super) fn content_hash(&self, file: &SourceFile) -> Result<Option<String>> {
        match &self.progress {
            _ if file.is_standard_input() => Ok(None),
            None => fs::content_hash(&file.path).map(Some),
            Some(progress) => Ok((progress.bytes() == file.size_bytes).then(|| progress.hash())),
        }
    }

    /// Returns the next item; `None` after the last.
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
