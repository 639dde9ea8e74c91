//! Counts the cells that are done and estimates the time for the rest.

use std::time::Duration;

use crate::telemetry::{Progress, Stage, Unit};
use base::quantity::format_span;

/// The number of finished cells of one command, and the time that they took.
pub(super) struct Forecast {
    progress: Progress,
    stage: Stage,
    total: usize,
    done: usize,
    trained: u32,
    spent: Duration,
    /// Number of cells that are trained at the same time, in this process or in several.
    at_once: usize,
    /// True if other processes train some of the cells.
    is_dealt_out: bool,
}

impl Forecast {
    /// Returns a forecast for `total` cells, none of which is done.
    pub(super) fn new(progress: &Progress, total: usize) -> Self {
        let stage = progress.stage("cells", Unit::Items, Some(total as u64));
        Self {
            progress: progress.clone(),
            stage,
            total,
            done: 0,
            trained: 0,
            spent: Duration::ZERO,
            at_once: 1,
            is_dealt_out: false,
        }
    }

    /// Sets how many cells are trained at the same time from now on: `lanes` in this process, or one in each
    /// of several `processes`.
    pub(super) fn at_once(&mut self, lanes: usize, processes: usize) {
        self.at_once = if processes > 1 { processes } else { lanes.max(1) };
        self.is_dealt_out = processes > 1;
    }

    /// Counts one more finished cell and reports its result. `took` is `None` if the cell was complete
    /// already or another process trained it.
    pub(super) fn add(&mut self, name: &str, result: &str, took: Option<Duration>) {
        self.done += 1;
        self.trained += u32::from(took.is_some());
        self.spent += took.unwrap_or_default();
        self.stage.advance(1);
        let known = if took.is_none() && !self.is_dealt_out { " (complete already)" } else { "" };
        let left = self.left().map(|left| format!("; about {} left", format_span(left.as_secs_f64())));
        let Self { done, total, .. } = *self;
        self.progress
            .note(&format!("cell {done} of {total}, {name}: {result}{known}{}", left.unwrap_or_default()));
    }

    /// Estimates the time for the remaining cells: the mean time of the trained cells, for each round of
    /// `at_once` cells. `None` before the first cell was trained here.
    fn left(&self) -> Option<Duration> {
        let cells = (self.total - self.done).div_ceil(self.at_once) as u32;
        let mean = self.spent.checked_div(self.trained)?;
        (cells > 0).then(|| Duration::from_secs((mean * cells).as_secs().max(1)))
    }
}
