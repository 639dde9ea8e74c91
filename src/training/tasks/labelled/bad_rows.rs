//! Rows that cannot be read: either errors, or skipped and counted.

use std::path::Path;

use anyhow::Result;

use base::error::Problem;
use base::quantity::format_count;
use config::OnBadRecord;
use data::records::RowError;

/// Handling of the bad rows of one file: reports the first one as an error, or skips and counts them.
#[derive(Debug, Clone)]
pub struct BadRows {
    on_bad_record: OnBadRecord,
    /// `row` or `sentence`, for messages.
    unit: &'static str,
    count: u64,
    first: Option<Problem>,
}

impl BadRows {
    /// No bad rows yet. `unit` is `row` or `sentence`, for messages.
    pub fn new(on_bad_record: OnBadRecord, unit: &'static str) -> Self {
        Self { on_bad_record, unit, count: 0, first: None }
    }

    /// Returns a good row. A bad row is an error; if bad rows are skipped, it is counted and `None` is
    /// returned.
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

    /// A note with the number of skipped rows of `path` and the error of the first one; `None` if none was
    /// skipped.
    pub fn note(&self, path: &Path) -> Option<String> {
        let first = self.first.as_ref()?;
        let place = path.display();
        let count = format_count(self.count);
        let unit = self.unit;
        let ending = if self.count == 1 { "" } else { "s" };
        Some(format!("{place}: {count} {unit}{ending} left out that cannot be read; the first: {first}"))
    }

    /// The error for a file without `rows`; its hint is the note about skipped rows, if there are any.
    pub(super) fn none_left(&self, path: &Path, rows: &str) -> Problem {
        let problem = Problem::new(format!("has no {rows}")).at(path.display());
        match self.note(path) {
            Some(note) => problem.hint(note),
            None => problem,
        }
    }
}
