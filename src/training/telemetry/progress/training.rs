//! Progress of a training run: a bar, lines or events.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::json;

use crate::telemetry::progress::{Progress, events, text};
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;

/// Shortest interval between two events with the progress of a run or a stage.
pub(super) const EVENT_INTERVAL: Duration = Duration::from_millis(200);

/// Shows steps, loss, tokens/s and the remaining time.
pub struct TrainingProgress {
    progress: Progress,
    folder: String,
    bar: Option<ProgressBar>,
    total_steps: u64,
    /// Number of updates that earlier processes of the run did.
    first_step: u64,
    started: Instant,
    /// Seconds after the start of this sitting at which a time limit ends the run.
    limit_seconds: Option<f64>,
    /// Time of the last event with the step.
    last_event: Instant,
}

impl TrainingProgress {
    pub(super) fn new(progress: Progress, folder: &Path, total_steps: u64, done_steps: u64) -> Self {
        let bar =
            progress.bar(Some(total_steps), "{pos}/{len} {bar} {percent}%  {elapsed}<{prefix}  {wide_msg}");
        if let Some(bar) = &bar {
            bar.set_position(done_steps);
            bar.set_prefix("?");
        }
        let folder = folder.display().to_string();
        let now = Instant::now();
        Self {
            progress,
            folder,
            bar,
            total_steps,
            first_step: done_steps,
            started: now,
            limit_seconds: None,
            last_event: now,
        }
    }

    /// Limits the remaining time that is shown: this sitting ends at most `limit_seconds` after its start.
    pub fn end_within(&mut self, limit_seconds: f64) {
        self.limit_seconds = Some(limit_seconds);
    }

    /// Changes the total number of updates.
    pub fn end_after(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
        if let Some(bar) = &self.bar {
            bar.set_length(total_steps);
        }
    }

    /// Shows that `step` updates are done, also between two records.
    pub fn step(&mut self, step: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            if let Some(seconds) = self.remaining_seconds(step) {
                bar.set_prefix(text::duration_text(seconds));
            }
        }
        let is_due = step == self.total_steps || self.last_event.elapsed() >= EVENT_INTERVAL;
        if self.progress.sends_events() && is_due {
            self.last_event = Instant::now();
            let total = self.total_steps;
            let remaining = self.remaining_seconds(step);
            let fields = json!({"folder": self.folder, "step": step, "total_steps": total, "seconds_to_go": remaining});
            events::send("step", fields);
        }
    }

    /// Estimates the remaining seconds from the steps of this process only. Steps of earlier processes took
    /// no time of this one, so the bar's own estimate would be far too low.
    pub(super) fn remaining_seconds(&self, step: u64) -> Option<f64> {
        let done = step.saturating_sub(self.first_step);
        let elapsed_seconds = self.started.elapsed().as_secs_f64();
        let of_steps = text::remaining_seconds(done, self.total_steps.saturating_sub(step), elapsed_seconds)?;
        let of_limit = self.limit_seconds.map(|limit| (limit - elapsed_seconds).max(0.0));
        Some(of_limit.map_or(of_steps, |of_limit| of_steps.min(of_limit)))
    }
}

impl Sink for TrainingProgress {
    fn write(&mut self, record: &Record) -> Result<()> {
        self.step(record.step);
        let is_evaluation = record.values.iter().any(|(tag, _)| tag.starts_with("eval/"));
        if let Some(bar) = &self.bar {
            if is_evaluation {
                self.progress.note(&text::record_line(record, self.total_steps));
            } else {
                bar.set_message(self.progress.with_label(&text::values_text(record)));
                self.progress.log(&text::record_line(record, self.total_steps));
            }
        } else {
            let line = text::record_line(record, self.total_steps);
            let has_eta = !is_evaluation && record.step < self.total_steps;
            let eta = self.remaining_seconds(record.step).filter(|_| has_eta);
            let eta =
                eta.map(|seconds| format!("  eta {}", text::duration_text(seconds))).unwrap_or_default();
            let line = format!("{line}{eta}");
            if self.progress.sends_events() {
                self.progress.log(&line);
                let text = self.progress.with_label(&line);
                let fields = json!({"folder": self.folder, "record": record.to_json(), "text": text});
                events::send("metrics", fields);
            } else {
                self.progress.note(&line);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // A bar that remained would share its line with the report. The last evaluation was printed above it
        // already.
        if let Some(bar) = self.bar.take() {
            self.progress.remove(&bar);
        }
        Ok(())
    }
}
