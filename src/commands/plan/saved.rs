//! A plan that is saved in the folder of its run, and its comparison with the finished run.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::commands::outputs::OverwriteArgs;
use crate::commands::plan::{CPU, HERE};
use crate::estimate::Rentable;
use crate::fs;
use crate::fs::Output;
use crate::machine::Machine;
use crate::ops::cuda;
use crate::quantity::{format_bytes, format_span};

/// Name of the file in a run folder.
pub(in crate::commands) const PLAN: &str = "plan.json";

const CAP_BYTES: u64 = 1 << 20;

/// Saves a plan in the folder of its run.
pub(super) fn save(folder: &Path, plan: &Value) -> Result<()> {
    fs::create_folder(folder)?;
    let path = folder.join(PLAN);
    let own = Output { is_own: is_plan, ..Output::new("--save", &path) };
    OverwriteArgs::default().require(&[own], &[])?;
    fs::write_bytes(&path, format!("{plan:#}\n").as_bytes())
}

/// True if `head` is the beginning of a saved plan.
fn is_plan(head: &[u8]) -> bool {
    head.starts_with(b"{\n  \"num_parameters\": ")
}

/// The actual speed and memory of a run.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Actual {
    /// Number of tokens that the model was trained on.
    pub tokens: f64,
    /// Training speed without evaluations and saves.
    pub tokens_per_second: f64,
    /// Peak of the memory on the device.
    pub peak_bytes: Option<u64>,
}

impl Actual {
    /// Returns the figures of this process, with its peak memory on the device of `machine`.
    pub(in crate::commands) fn new(machine: &Machine, tokens: f64, tokens_per_second: f64) -> Self {
        let on_gpu = cuda::memory(&machine.device).map(|memory| memory.peak_bytes);
        Self { tokens, tokens_per_second, peak_bytes: on_gpu.or_else(fs::peak_resident_bytes) }
    }
}

/// Returns two lines: the plan for this device, and the difference of the run from it. Without a valid plan
/// in the folder there are no lines; that is no error, because a run does not need its plan.
pub(in crate::commands) fn compared(folder: &Path, machine: &Machine, actual: Actual) -> Vec<String> {
    let gpu = cuda::properties(&machine.device);
    let gpu = gpu.and_then(|gpu| Rentable::ALL.into_iter().find(|known| known.driver_name == gpu.name));
    let text = fs::read_text_capped(&folder.join(PLAN), CAP_BYTES).ok();
    let plan: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    let device = if machine.device.is_cpu() { Some(CPU) } else { gpu.map(|gpu| gpu.name) };
    plan.map(|plan| lines(&plan, device, actual)).unwrap_or_default()
}

/// The row of a device in a plan, if the run fits there.
fn device_row<'a>(plan: &'a Value, device: &str) -> Option<&'a Value> {
    let mut rows = plan["devices"].as_array().into_iter().flatten();
    rows.find(|row| row["device"] == device && row["fits"] == true)
}

/// Compares a run with the row of this machine (`here`) in a plan, else with the row of `device`.
fn lines(plan: &Value, device: Option<&str>, actual: Actual) -> Vec<String> {
    let row = device_row(plan, HERE).or_else(|| device_row(plan, device?));
    let Some(row) = row else { return Vec::new() };
    let numbers = [&plan["tokens"], &row["train_seconds"], &row["memory_bytes"]]
        .map(|value| value.as_f64().filter(|number| *number > 0.0));
    let [Some(tokens), Some(seconds), Some(bytes)] = numbers else { return Vec::new() };
    let how = if row["measured"] == true { "measured" } else { "predicted" };
    let mut lines =
        vec![format!("{} for steps, {} ({how} by `plan`)", format_span(seconds), format_bytes(bytes as u64))];
    let took = actual.tokens / actual.tokens_per_second.max(1e-9);
    let memory = actual.peak_bytes.map(|peak| {
        let difference = percent_difference(peak as f64, bytes, ["more", "less"]);
        format!("; {}, {difference}", format_bytes(peak))
    });
    // The planned time is scaled to the actual number of tokens, so that a run that ended early is compared
    // by speed.
    let planned = seconds * actual.tokens / tokens;
    // A difference of up to 5 % is not reported: rows are never quite full.
    let share = if (actual.tokens / tokens - 1.0).abs() > 0.05 {
        format!(" ({:.0} % of the planned tokens)", 100.0 * actual.tokens / tokens)
    } else {
        String::new()
    };
    let memory = memory.unwrap_or_default();
    let speed = percent_difference(took, planned, ["slower", "faster"]);
    lines.push(format!("{}, {speed} than planned{share}{memory}", format_span(took)));
    lines
}

/// The difference of the actual value in percent of the planned one, with the word for more or for less.
fn percent_difference(actual: f64, planned: f64, [above, below]: [&str; 2]) -> String {
    let percent = 100.0 * (actual / planned - 1.0);
    format!("{:.0} % {}", percent.abs(), if percent < 0.0 { below } else { above })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_compared_with_the_row_of_its_device() {
        let plan = json!({"tokens": 1000, "devices": [row("h100", 50.0, false), row("here", 100.0, true)]});
        let peak_bytes = Some((1 << 30) + (1 << 29));
        let actual = Actual { tokens: 1000.0, tokens_per_second: 8.0, peak_bytes };
        let found = lines(&plan, None, actual);
        assert_eq!(
            found,
            [
                "1.7 minutes for steps, 1GiB (measured by `plan`)",
                "2.1 minutes, 25 % slower than planned; 1.5GiB, 50 % more"
            ]
        );
        let half = Actual { tokens: 500.0, peak_bytes: None, ..actual };
        assert_eq!(
            lines(&plan, None, half)[1],
            "1 minute, 25 % slower than planned (50 % of the planned tokens)"
        );
        let rented = json!({"tokens": 1000, "devices": [row("h100", 125.0, false)]});
        assert_eq!(
            lines(&rented, Some("h100"), half)[1],
            "1 minute, 0 % slower than planned (50 % of the planned tokens)"
        );
        assert!(lines(&rented, None, actual).is_empty() && lines(&json!([]), None, actual).is_empty());
    }

    fn row(device: &str, seconds: f64, measured: bool) -> Value {
        json!({"device": device, "fits": true, "measured": measured, "train_seconds": seconds,
               "memory_bytes": 1_u64 << 30})
    }
}
