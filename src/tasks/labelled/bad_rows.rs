//! Rows that cannot be read: they are errors, or are skipped and counted.

use std::path::Path;

use anyhow::Result;

use crate::config::OnBadRecord;
use crate::error::Problem;
use crate::quantity::format_count;

/// An error of one row, or of the file.
#[derive(Debug)]
pub enum RowError {
    /// One row is wrong; the next one can be read.
    Row(Problem),
    /// The rest of the file cannot be read.
    File(anyhow::Error),
}

impl From<Problem> for RowError {
    fn from(problem: Problem) -> Self {
        Self::Row(problem)
    }
}

impl From<anyhow::Error> for RowError {
    fn from(error: anyhow::Error) -> Self {
        Self::File(error)
    }
}

impl From<RowError> for anyhow::Error {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Row(problem) => problem.into(),
            RowError::File(error) => error,
        }
    }
}

/// Handles the bad rows of one file: counts those that are skipped.
#[derive(Debug, Clone)]
pub struct BadRows {
    on_bad_record: OnBadRecord,
    /// `row` or `sentence`, for messages.
    unit: &'static str,
    count: u64,
    first: Option<Problem>,
}

impl BadRows {
    /// For a file that was not read yet. `unit` is `row` or `sentence`, for messages.
    pub fn new(on_bad_record: OnBadRecord, unit: &'static str) -> Self {
        Self { on_bad_record, unit, count: 0, first: None }
    }

    /// Returns a row that can be read. A bad row is an error, or is counted and `None` if bad rows are skipped.
    pub(super) fn take<T>(&mut self, row: Result<T, RowError>) -> Result<Option<T>> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(RowError::Row(problem)) if self.on_bad_record == OnBadRecord::Skip => {
                self.count += 1;
                self.first.get_or_insert(problem);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A note with the number of rows of `path` that were skipped, and the error of the first; `None` for no rows.
    pub fn note(&self, path: &Path) -> Option<String> {
        let first = self.first.as_ref()?;
        let (place, count) = (path.display(), format_count(self.count));
        let unit = self.unit;
        let ending = if self.count == 1 { "" } else { "s" };
        Some(format!("{place}: {count} {unit}{ending} left out that cannot be read; the first: {first}"))
    }

    /// The error for a file without `rows`; it has the note if all of them were skipped.
    pub(super) fn none_left(&self, path: &Path, rows: &str) -> Problem {
        let problem = Problem::new(format!("has no {rows}")).at(path.display());
        match self.note(path) {
            Some(note) => problem.hint(note),
            None => problem,
        }
    }
}
