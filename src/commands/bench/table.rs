//! The format of the rows of `mlmtrain bench`: an aligned table for people, JSON for programs.

use anyhow::Result;
use serde_json::{Value, json};

use crate::commands::bench::job::{Machine, Timed};
use crate::commands::terminal;
use crate::quantity::{format_bytes, format_grouped};
use crate::train::bench::{Case, TimedTask};

/// A row of the table: what was measured, and the outcome.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row<'a> {
    /// Name of the model as the user typed it.
    pub(super) model: &'a str,
    pub(super) case: &'a Case,
    pub(super) machine: &'a Machine,
    pub(super) outcome: Outcome,
}

/// The number of examples and the price for the columns of minutes and cents per epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Epoch {
    pub(super) examples: u64,
    /// Price of the machine.
    pub(super) usd_per_hour: Option<f64>,
}

impl Epoch {
    fn seconds(self, measured: &Measured) -> f64 {
        self.examples as f64 / measured.examples_per_second
    }

    fn usd(self, measured: &Measured) -> Option<f64> {
        self.usd_per_hour.map(|usd| usd * self.seconds(measured) / 3600.0)
    }
}

/// The outcome of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Done(Measured),
    /// Out of memory, with an explanation.
    DoesNotFit(String),
    /// Another error, with its message.
    Failed(String),
}

/// The measured figures of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Median over the timed steps.
    pub(super) step_seconds: f64,
    /// Time of the fastest step.
    pub(super) least_step_seconds: f64,
    pub(super) timed_steps: usize,
    pub(super) examples_per_second: f64,
    pub(super) tokens_per_second: f64,
    pub(super) flops_per_second: f64,
    /// Share of the machine's peak in the row's compute type; the peak is measured on a CPU, from the data
    /// sheet of a GPU. `None` without a known peak, or if the step was faster than the peak allows.
    pub(super) mfu: Option<f64>,
    pub(super) peak_memory_bytes: Option<u64>,
    /// Memory that was predicted from the shapes before the measurement.
    pub(super) predicted_memory_bytes: u64,
}

impl Measured {
    pub(super) fn new(case: &Case, timed: &Timed, machine: &Machine) -> Result<Self> {
        let flops_per_second = timed.step_flops / timed.median_seconds;
        Ok(Self {
            step_seconds: timed.median_seconds,
            least_step_seconds: timed.least_seconds,
            timed_steps: timed.steps,
            examples_per_second: case.rows as f64 / timed.median_seconds,
            tokens_per_second: case.tokens() as f64 / timed.median_seconds,
            flops_per_second,
            mfu: machine.peak(case.compute).map(|peak| flops_per_second / peak).filter(|share| *share <= 1.0),
            peak_memory_bytes: timed.peak_memory_bytes,
            predicted_memory_bytes: case.predicted_bytes(machine.is_gpu())?,
        })
    }
}

/// The columns of a table, known before its first row.
#[derive(Debug)]
pub(super) struct Table {
    model_width: usize,
    epoch: Option<Epoch>,
}

impl Table {
    /// Returns a table for rows of these models.
    pub(super) fn new<'a>(models: impl Iterator<Item = &'a str>, epoch: Option<Epoch>) -> Self {
        let width = models.map(|model| terminal::printable(model).chars().count()).max().unwrap_or(0);
        Self { model_width: width.max("model".len()), epoch }
    }

    /// The line of column titles.
    pub(super) fn header(&self) -> String {
        let first = self.first(["model", "device", "batch", "length", "compute"]);
        let epoch =
            self.epoch.map(|epoch| epoch_cells("min/epoch", epoch.usd_per_hour.map(|_| "cents/epoch")));
        let figures = figures(["examples/s", "tokens/s", "step", "MFU", "peak memory"]);
        format!("{first}{figures}{}", epoch.unwrap_or_default())
    }

    /// The line of one row.
    pub(super) fn line(&self, row: &Row<'_>) -> String {
        let case = row.case;
        let model = terminal::printable(row.model);
        let batch = case.rows.to_string();
        let length = case.length.to_string();
        let first = self.first([&model, &row.machine.device, &batch, &length, case.compute.name()]);
        match &row.outcome {
            Outcome::Done(measured) => format!("{first}{}", measured.line(self.epoch)),
            Outcome::DoesNotFit(reason) => format!("{first}  out of memory: {reason}"),
            Outcome::Failed(message) => format!("{first}  failed: {}", terminal::printable(message)),
        }
    }

    fn first(&self, [model, device, batch, length, compute]: [&str; 5]) -> String {
        format!("{model:width$} {device:6} {batch:>6} {length:>7}  {compute:7}", width = self.model_width)
    }
}

impl Measured {
    fn line(&self, epoch: Option<Epoch>) -> String {
        let step = match self.step_seconds {
            seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
            seconds => format!("{seconds:.2} s"),
        };
        let examples = grouped(self.examples_per_second);
        let tokens = format_grouped(self.tokens_per_second.round() as u64);
        let mfu = self.mfu.map_or_else(|| "-".to_string(), |share| format!("{:.1} %", 100.0 * share));
        let memory = self.peak_memory_bytes.map_or_else(|| "-".to_string(), format_bytes);
        let epoch = epoch.map(|epoch| {
            let cents = epoch.usd(self).map(|usd| grouped(100.0 * usd));
            epoch_cells(&grouped(epoch.seconds(self) / 60.0), cents.as_deref())
        });
        let figures = figures([&examples, &tokens, &step, &mfu, &memory]);
        format!("{figures}{}", epoch.unwrap_or_default())
    }
}

/// A number with one decimal if it is below 100, else a whole number with separators.
fn grouped(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { format_grouped(number.round() as u64) }
}

fn figures([examples, tokens, step, mfu, memory]: [&str; 5]) -> String {
    format!(" {examples:>11} {tokens:>11} {step:>9} {mfu:>7} {memory:>12}")
}

fn epoch_cells(minutes: &str, cents: Option<&str>) -> String {
    format!(" {minutes:>10}{}", cents.map(|cents| format!(" {cents:>12}")).unwrap_or_default())
}

impl Row<'_> {
    /// Returns the row as a JSON object; figures that were not measured are `null`.
    pub(super) fn to_json(&self, epoch: Option<Epoch>) -> Value {
        let Self { model, case, machine, outcome } = self;
        let measured = if let Outcome::Done(measured) = outcome { Some(measured) } else { None };
        let (fits, problem) = match outcome {
            Outcome::Done(_) => (Some(true), None),
            Outcome::DoesNotFit(reason) => (Some(false), Some(reason)),
            Outcome::Failed(message) => (None, Some(message)),
        };
        let task = match case.task {
            TimedTask::Pretraining { .. } => "pretrain",
            TimedTask::Classification { .. } => "classify",
        };
        let epoch = epoch.zip(measured);
        json!({
            "model": model,
            "task": task,
            "batch": case.rows,
            "length": case.length,
            "compute": case.compute.name(),
            "device": machine.device,
            "threads": machine.threads,
            "instructions": machine.path(case.compute),
            "instructions_cap": machine.instructions_cap,
            "fits": fits,
            "examples_per_second": measured.map(|m| m.examples_per_second),
            "tokens_per_second": measured.map(|m| m.tokens_per_second),
            "step_seconds": measured.map(|m| m.step_seconds),
            "least_step_seconds": measured.map(|m| m.least_step_seconds),
            "timed_steps": measured.map(|m| m.timed_steps),
            "flops_per_second": measured.map(|m| m.flops_per_second),
            "mfu": measured.and_then(|m| m.mfu),
            "peak_memory_bytes": measured.and_then(|m| m.peak_memory_bytes),
            "predicted_memory_bytes": measured.map(|m| m.predicted_memory_bytes),
            "epoch_seconds": epoch.map(|(epoch, measured)| epoch.seconds(measured)),
            "epoch_usd": epoch.and_then(|(epoch, measured)| epoch.usd(measured)),
            "problem": problem,
        })
    }
}
