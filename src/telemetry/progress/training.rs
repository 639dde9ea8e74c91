//! The bar, or the lines, of a training run.

use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::json;

use crate::telemetry::progress::Progress;
use crate::telemetry::progress::events;
use crate::telemetry::progress::text;
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;

/// A program is told so often at most how far a run or a stage is.
pub(super) const EVENT_INTERVAL: Duration = Duration::from_millis(200);

/// Shows steps, loss, tokens/s and the time to go.
pub struct TrainingProgress {
    progress: Progress,
    folder: String,
    bar: Option<ProgressBar>,
    total_steps: u64,
    first_step: u64,
    started: Instant,
    /// When the last event told the step.
    told: Instant,
}

impl TrainingProgress {
    pub(super) fn new(progress: Progress, folder: &Path, total_steps: u64, done_steps: u64) -> Self {
        let bar =
            progress.bar(Some(total_steps), "{pos}/{len} {bar} {percent}%  {elapsed}<{prefix}  {wide_msg}");
        if let Some(bar) = &bar {
            bar.set_position(done_steps);
            bar.set_prefix("?");
        }
        let (folder, now) = (folder.display().to_string(), Instant::now());
        Self { progress, folder, bar, total_steps, first_step: done_steps, started: now, told: now }
    }

    /// There are so many updates in all.
    pub fn end_after(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
        if let Some(bar) = &self.bar {
            bar.set_length(total_steps);
        }
    }

    /// `step` updates are done: moves the bar between two records.
    pub fn step(&mut self, step: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            if let Some(seconds) = self.seconds_to_go(step) {
                bar.set_prefix(text::duration_text(seconds));
            }
        }
        let is_due = step == self.total_steps || self.told.elapsed() >= EVENT_INTERVAL;
        if self.progress.sends_events() && is_due {
            self.told = Instant::now();
            let (total, to_go) = (self.total_steps, self.seconds_to_go(step));
            let fields =
                json!({"folder": self.folder, "step": step, "total_steps": total, "seconds_to_go": to_go});
            events::send("step", fields);
        }
    }

    /// Steps of an earlier sitting took none of this one's time, so the bar's own estimate would be far too
    /// good.
    fn seconds_to_go(&self, step: u64) -> Option<f64> {
        let done = step.saturating_sub(self.first_step);
        text::seconds_to_go(done, self.total_steps.saturating_sub(step), self.started.elapsed().as_secs_f64())
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
            let wanted = !is_evaluation && record.step < self.total_steps;
            let eta = self.seconds_to_go(record.step).filter(|_| wanted);
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
        // A bar that stays would share its line with the report; the last evaluation stands above it already.
        if let Some(bar) = self.bar.take() {
            self.progress.remove(&bar);
        }
        Ok(())
    }
}
