//! How a row of `mlmtrain bench` looks: aligned for people, as JSON for programs.

use anyhow::Result;
use serde_json::Value;
use serde_json::json;

use crate::commands::bench::job::Machine;
use crate::commands::bench::job::Steps;
use crate::commands::bench::job::Timed;
use crate::commands::terminal;
use crate::config::ComputeType;
use crate::quantity::format_bytes;
use crate::quantity::format_grouped;

/// What a row says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) model: String,
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) compute: ComputeType,
    pub(super) device: String,
    pub(super) threads: usize,
    /// By which products are computed, on a CPU.
    pub(super) instructions: Option<String>,
    /// What `MLMTRAIN_CPU` allows, where it is set.
    pub(super) instructions_cap: Option<String>,
    pub(super) outcome: Outcome,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Done(Measured),
    /// With the reason.
    DoesNotFit(String),
    /// With the message.
    Failed(String),
}

/// The figures of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Median.
    pub(super) step_seconds: f64,
    pub(super) least_step_seconds: f64,
    pub(super) timed_steps: usize,
    pub(super) examples_per_second: f64,
    pub(super) tokens_per_second: f64,
    pub(super) flops_per_second: f64,
    /// Share of the machine's peak in the row's compute type: measured on a CPU, by its data sheet of a GPU.
    pub(super) mfu: Option<f64>,
    pub(super) peak_memory_bytes: Option<u64>,
    /// What the shapes alone said before.
    pub(super) predicted_memory_bytes: u64,
}

impl Measured {
    pub(super) fn new(steps: &Steps, timed: &Timed, machine: &Machine) -> Result<Self> {
        let flops_per_second = timed.step_flops / timed.median_seconds;
        Ok(Self {
            step_seconds: timed.median_seconds,
            least_step_seconds: timed.least_seconds,
            timed_steps: timed.steps,
            examples_per_second: steps.batch as f64 / timed.median_seconds,
            tokens_per_second: steps.case().tokens() as f64 / timed.median_seconds,
            flops_per_second,
            mfu: machine.peak(steps.compute).map(|peak| flops_per_second / peak),
            peak_memory_bytes: timed.peak_memory_bytes,
            predicted_memory_bytes: steps.case().predicted_bytes(machine.is_gpu())?,
        })
    }
}

/// The widths of a table's columns, known before its first row is.
#[derive(Debug)]
pub(super) struct Table {
    model_width: usize,
}

impl Table {
    /// For rows of these models.
    pub(super) fn new<'a>(models: impl Iterator<Item = &'a str>) -> Self {
        Self {
            model_width: models
                .map(|model| terminal::printable(model).chars().count())
                .max()
                .unwrap_or(0)
                .max("model".len()),
        }
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> String {
        let first = self.first("model", "batch", "length", "compute");
        format!("{first}{}", figures("examples/s", "tokens/s", "step", "MFU", "peak memory"))
    }

    /// One row.
    pub(super) fn line(&self, row: &Row) -> String {
        let model = terminal::printable(&row.model);
        let first = self.first(&model, &row.batch.to_string(), &row.length.to_string(), row.compute.name());
        match &row.outcome {
            Outcome::Done(measured) => format!("{first}{}", measured.line()),
            Outcome::DoesNotFit(reason) => format!("{first}  does not fit: {reason}"),
            Outcome::Failed(message) => format!("{first}  failed: {}", terminal::printable(message)),
        }
    }

    fn first(&self, model: &str, batch: &str, length: &str, compute: &str) -> String {
        format!("{model:width$} {batch:>6} {length:>7}  {compute:7}", width = self.model_width)
    }
}

impl Measured {
    fn line(&self) -> String {
        let step = match self.step_seconds {
            seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
            seconds => format!("{seconds:.2} s"),
        };
        let examples = match self.examples_per_second {
            few if few < 100.0 => format!("{few:.1}"),
            many => format_grouped(many.round() as u64),
        };
        let tokens = format_grouped(self.tokens_per_second.round() as u64);
        let mfu = self.mfu.map_or_else(|| "-".to_string(), |share| format!("{:.1} %", 100.0 * share));
        let memory = self.peak_memory_bytes.map_or_else(|| "-".to_string(), format_bytes);
        figures(&examples, &tokens, &step, &mfu, &memory)
    }
}

fn figures(examples: &str, tokens: &str, step: &str, mfu: &str, memory: &str) -> String {
    format!(" {examples:>11} {tokens:>11} {step:>9} {mfu:>7} {memory:>12}")
}

impl Row {
    /// The row as an object; figures that there are not are `null`.
    pub(super) fn to_json(&self) -> Value {
        let measured = if let Outcome::Done(measured) = &self.outcome { Some(measured) } else { None };
        let figure = |of: fn(&Measured) -> f64| measured.map(of);
        let (fits, problem) = match &self.outcome {
            Outcome::Done(_) => (Some(true), None),
            Outcome::DoesNotFit(reason) => (Some(false), Some(reason)),
            Outcome::Failed(message) => (None, Some(message)),
        };
        json!({
            "model": self.model,
            "batch": self.batch,
            "length": self.length,
            "compute": self.compute.name(),
            "device": self.device,
            "threads": self.threads,
            "instructions": self.instructions,
            "instructions_cap": self.instructions_cap,
            "fits": fits,
            "examples_per_second": figure(|m| m.examples_per_second),
            "tokens_per_second": figure(|m| m.tokens_per_second),
            "step_seconds": figure(|m| m.step_seconds),
            "least_step_seconds": figure(|m| m.least_step_seconds),
            "timed_steps": measured.map(|m| m.timed_steps),
            "flops_per_second": figure(|m| m.flops_per_second),
            "mfu": measured.and_then(|m| m.mfu),
            "peak_memory_bytes": measured.and_then(|m| m.peak_memory_bytes),
            "predicted_memory_bytes": measured.map(|m| m.predicted_memory_bytes),
            "problem": problem,
        })
    }
}
