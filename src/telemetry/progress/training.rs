//! The bar, or the lines, of a training run.

use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;

use crate::telemetry::progress::Progress;
use crate::telemetry::progress::text;
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;

/// Shows steps, loss, tokens/s and the time to go.
pub struct TrainingProgress {
    progress: Progress,
    bar: Option<ProgressBar>,
    total_steps: u64,
    first_step: u64,
    started: Instant,
}

impl TrainingProgress {
    pub(super) fn new(progress: Progress, total_steps: u64, done_steps: u64) -> Self {
        let bar =
            progress.bar(Some(total_steps), "{pos}/{len} {bar} {percent}%  {elapsed}<{prefix}  {wide_msg}");
        if let Some(bar) = &bar {
            bar.set_position(done_steps);
            bar.set_prefix("?");
        }
        Self { progress, bar, total_steps, first_step: done_steps, started: Instant::now() }
    }

    /// There are so many updates in all.
    pub fn end_after(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
        if let Some(bar) = &self.bar {
            bar.set_length(total_steps);
        }
    }

    /// `step` updates are done: moves the bar between two records.
    pub fn step(&self, step: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            if let Some(seconds) = self.seconds_to_go(step) {
                bar.set_prefix(text::duration_text(seconds));
            }
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
            self.progress.note(&format!("{line}{eta}"));
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
