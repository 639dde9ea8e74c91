//! Rows that cannot be read: an error, or left out and counted.

use std::path::Path;

use anyhow::Result;

use crate::config::OnBadRecord;
use crate::error::Problem;
use crate::quantity::format_count;

/// Why there is no row.
#[derive(Debug)]
pub enum RowError {
    /// One row is wrong, and the next one may be right.
    Row(Problem),
    /// What follows in the file cannot be read either.
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

/// What to do with bad rows, and those of one file that were left out.
#[derive(Debug, Clone)]
pub struct BadRows {
    on_bad_record: OnBadRecord,
    /// What one of them is called, `row` or `sentence`.
    unit: &'static str,
    count: u64,
    first: Option<Problem>,
}

impl BadRows {
    /// Of a file, none of whose rows were read. `unit` is what one is called, `row` or `sentence`.
    pub fn new(on_bad_record: OnBadRecord, unit: &'static str) -> Self {
        Self { on_bad_record, unit, count: 0, first: None }
    }

    /// Gives a row that can be read. Counts one that cannot be read, and gives `None`, where such rows are to
    /// be left out; else it is an error.
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

    /// How many rows of `path` were left out, and what is wrong with the first of them; `None` where there
    /// were none.
    pub fn note(&self, path: &Path) -> Option<String> {
        let first = self.first.as_ref()?;
        let (place, count) = (path.display(), format_count(self.count));
        let (unit, ending) = (self.unit, if self.count == 1 { "" } else { "s" });
        Some(format!("{place}: {count} {unit}{ending} left out that cannot be read; the first: {first}"))
    }

    /// The error that `path` has no `rows`, as it is without any or all of them are bad.
    pub(super) fn none_left(&self, path: &Path, rows: &str) -> Problem {
        let problem = Problem::new(format!("has no {rows}")).at(path.display());
        match self.note(path) {
            Some(note) => problem.hint(note),
            None => problem,
        }
    }
}
