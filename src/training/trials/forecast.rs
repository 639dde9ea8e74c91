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
    /// Work of all cells, of those that are done, and of those that were trained here, in any unit.
    work: f64,
    done_work: f64,
    trained_work: f64,
    /// Time of the cells that were trained here.
    spent: Duration,
    /// Number of cells that are trained at the same time, in this process or in several.
    at_once: usize,
    /// True if other processes train some of the cells.
    is_dealt_out: bool,
}

impl Forecast {
    /// Returns a forecast before the first of `total` cells, with the `work` of all of them.
    pub(super) fn new(progress: &Progress, total: usize, work: f64) -> Self {
        let stage = progress.stage("cells", Unit::Items, Some(total as u64));
        Self {
            progress: progress.clone(),
            stage,
            total,
            done: 0,
            work,
            done_work: 0.0,
            trained_work: 0.0,
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

    /// Counts one more finished cell, of this much work, and reports its result. `took` is `None` if the cell
    /// was complete already or another process trained it.
    pub(super) fn add(&mut self, name: &str, result: &str, took: Option<Duration>, work: f64) {
        self.done += 1;
        self.done_work += work;
        if let Some(took) = took {
            self.trained_work += work;
            self.spent += took;
        }
        self.stage.advance(1);
        let known = if took.is_none() && !self.is_dealt_out { " (complete already)" } else { "" };
        let left = self.left().map(|left| format!("; about {} left", format_span(left.as_secs_f64())));
        let Self { done, total, .. } = *self;
        self.progress
            .note(&format!("cell {done} of {total}, {name}: {result}{known}{}", left.unwrap_or_default()));
    }

    /// Estimates the time for the remaining cells from that of the trained ones, in proportion to their work.
    /// `None` before the first cell was trained here.
    fn left(&self) -> Option<Duration> {
        if self.done == self.total || self.trained_work <= 0.0 {
            return None;
        }
        let seconds = self.spent.as_secs_f64() / self.trained_work * (self.work - self.done_work).max(0.0);
        Some(Duration::from_secs((seconds / self.at_once as f64).max(1.0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_more_work_take_longer() {
        let mut forecast = Forecast::new(&Progress::detect(true), 3, 21.0);
        assert_eq!(forecast.left(), None);
        forecast.add("known", "0.5", None, 1.0);
        assert_eq!(forecast.left(), None, "no cell was trained here");
        forecast.add("small", "0.5", Some(Duration::from_secs(3)), 5.0);
        assert_eq!(forecast.left(), Some(Duration::from_secs(9)));
        forecast.at_once(3, 1);
        assert_eq!(forecast.left(), Some(Duration::from_secs(3)));
        forecast.add("large", "0.5", Some(Duration::from_secs(9)), 15.0);
        assert_eq!(forecast.left(), None);
    }
}
