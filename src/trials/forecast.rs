//! How many cells are done, and how long the others will take.

use std::time::Duration;

use crate::quantity::format_span;
use crate::telemetry::Progress;
use crate::telemetry::Stage;
use crate::telemetry::Unit;

/// The cells of one command, as they are done.
pub(super) struct Forecast {
    progress: Progress,
    stage: Stage,
    total: usize,
    done: usize,
    trained: u32,
    spent: Duration,
    /// Cells that are trained at a time, here or in other processes.
    at_once: usize,
    /// Whether others train some of them.
    is_dealt_out: bool,
}

impl Forecast {
    /// None of `total` cells is done yet.
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

    /// From here on so many are trained at a time: in this process, or one in each of several.
    pub(super) fn at_once(&mut self, lanes: usize, processes: usize) {
        self.at_once = if processes > 1 { processes } else { lanes.max(1) };
        self.is_dealt_out = processes > 1;
    }

    /// One more is done, in `took` unless it was complete already or trained elsewhere.
    pub(super) fn add(&mut self, name: &str, result: &str, took: Option<Duration>) {
        self.done += 1;
        self.trained += u32::from(took.is_some());
        self.spent += took.unwrap_or_default();
        self.stage.advance(1);
        let known = if took.is_none() && !self.is_dealt_out { " (complete already)" } else { "" };
        let left = self.left().map(|left| format!("; about {} left", format_span(left.as_secs_f64())));
        let (done, total) = (self.done, self.total);
        self.progress
            .note(&format!("cell {done} of {total}, {name}: {result}{known}{}", left.unwrap_or_default()));
    }

    /// As long as the cells that were trained took, each of the others, so many at a time; none before one was
    /// trained.
    fn left(&self) -> Option<Duration> {
        let cells = (self.total - self.done).div_ceil(self.at_once) as u32;
        let mean = self.spent.checked_div(self.trained)?;
        (cells > 0).then(|| Duration::from_secs((mean * cells).as_secs().max(1)))
    }
}
