//! The documents of one file: opens the reader for its format, and returns the items that it assembles.
//!
//! The formats themselves are implemented in other files.

use std::sync::Arc;

use anyhow::Result;

use crate::corpus::Item;
use crate::corpus::read::Limits;
use crate::corpus::read::archive::TarMembers;
use crate::corpus::read::assembly::{Assembly, Records};
use crate::corpus::read::content::text_records;
use crate::corpus::read::files::SourceFile;
use crate::corpus::read::parquet::ParquetRows;
use crate::corpus::read::reading::Reading;
use crate::corpus::read::warc::WarcRecords;
use base::fs;
use base::fs::{Kind, Progress};

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
