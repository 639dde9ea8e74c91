//! Progress of a stage other than training, such as reading a corpus, writing shards or evaluating: a bar,
//! lines or events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;

use crate::telemetry::progress::training::EVENT_INTERVAL;
use crate::telemetry::progress::{Progress, events, text};

/// Interval between two lines of progress of a long stage, without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The unit that a stage counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as KiB, MiB, ...
    Bytes,
    /// Documents, batches or examples.
    Items,
}

/// A stage in progress, which several threads may advance. If dropped without [`Stage::finish`], the bar
/// disappears and no line remains.
pub struct Stage {
    progress: Progress,
    bar: Option<ProgressBar>,
    label: String,
    unit: Unit,
    total: Option<u64>,
    done: AtomicU64,
    started: Instant,
    /// Time of the last line or event.
    last_shown: Mutex<Instant>,
}

impl Stage {
    pub(super) fn new(progress: Progress, label: &str, unit: Unit, total: Option<u64>) -> Self {
        let template = match (unit, total) {
            (Unit::Bytes, Some(_)) => {
                "{prefix} {bar} {bytes}/{total_bytes}  {bytes_per_sec}  {elapsed}<{eta}"
            }
            (Unit::Items, Some(_)) => "{prefix} {bar} {human_pos}/{human_len}  {elapsed}<{eta}",
            (Unit::Bytes, None) => "{prefix} {bytes}  {bytes_per_sec}  {elapsed}",
            (Unit::Items, None) => "{prefix} {human_pos}  {elapsed}",
        };
        let bar = progress.bar(total, template);
        if let Some(bar) = &bar {
            bar.set_prefix(progress.with_label(label));
        }
        let now = Instant::now();
        Self {
            progress,
            bar,
            label: label.to_string(),
            unit,
            total,
            done: AtomicU64::new(0),
            started: now,
            last_shown: Mutex::new(now),
        }
    }

    /// Counts `count` more bytes or items as done.
    pub fn advance(&self, count: u64) {
        let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else if self.progress.sends_events() && self.is_due(EVENT_INTERVAL) {
            self.send(done);
        } else if self.progress.prints_lines() && self.is_due(LINE_INTERVAL) {
            let of_total =
                self.total.map(|total| format!(" of {}", self.count_text(total))).unwrap_or_default();
            self.progress.note(&format!("{}: {}{of_total}", self.label, self.count_text(done)));
        }
    }

    /// Ends the stage: removes the bar and prints the line `label: summary (40.0 MiB in 3s)`.
    pub fn finish(self, summary: &str) {
        let done = self.done.load(Ordering::Relaxed);
        if self.progress.sends_events() {
            self.send(done);
        }
        let done = self.count_text(done);
        let seconds = text::duration_text(self.started.elapsed().as_secs_f64());
        self.progress.note(&format!("{}: {summary} ({done} in {seconds})", self.label));
    }

    fn count_text(&self, count: u64) -> String {
        match self.unit {
            Unit::Bytes => HumanBytes(count).to_string(),
            Unit::Items => count.to_string(),
        }
    }

    /// Sends the progress as an event.
    fn send(&self, done: u64) {
        let unit = match self.unit {
            Unit::Bytes => "bytes",
            Unit::Items => "items",
        };
        let stage = self.progress.with_label(&self.label);
        events::send("stage", json!({"stage": stage, "done": done, "total": self.total, "unit": unit}));
    }

    /// Returns true, and restarts the interval, if the last line or event is at least `interval` ago.
    fn is_due(&self, interval: Duration) -> bool {
        // A thread that does not get the lock leaves the line to the thread that has it.
        let Ok(mut last) = self.last_shown.try_lock() else { return false };
        let due = last.elapsed() >= interval;
        if due {
            *last = Instant::now();
        }
        due
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            self.progress.remove(bar);
        }
    }
}
