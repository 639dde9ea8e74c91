//! A plan that is kept beside the run that it is of, and what became of it.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::commands::outputs::OverwriteArgs;
use crate::commands::plan::CPU;
use crate::commands::plan::HERE;
use crate::estimate::Rentable;
use crate::fs;
use crate::fs::Output;
use crate::machine::Machine;
use crate::ops::cuda;
use crate::quantity::format_bytes;
use crate::quantity::format_span;

/// Name of the file in a run folder.
pub(in crate::commands) const PLAN: &str = "plan.json";

const CAP_BYTES: u64 = 1 << 20;

/// Keeps a plan in the folder of its run.
pub(super) fn keep(folder: &Path, plan: &Value) -> Result<()> {
    fs::create_folder(folder)?;
    let path = folder.join(PLAN);
    let is_own = |head: &[u8]| head.starts_with(b"{\n  \"num_parameters\": ");
    let own = Output { is_own, ..Output::new("--save", &path) };
    OverwriteArgs::default().require(&[own], &[])?;
    fs::write_bytes(&path, format!("{plan:#}\n").as_bytes())
}

/// What a run of so many tokens came to.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Taken {
    /// Tokens that went through the model.
    pub tokens: f64,
    /// A second, evaluations and saves left out.
    pub tokens_per_second: f64,
    /// The most memory that was held on the device.
    pub peak_bytes: Option<u64>,
}

impl Taken {
    /// With the memory of this process on the device of `machine`.
    pub(in crate::commands) fn on(machine: &Machine, tokens: f64, tokens_per_second: f64) -> Self {
        let on_gpu = cuda::memory(&machine.device).map(|memory| memory.peak_bytes);
        Self { tokens, tokens_per_second, peak_bytes: on_gpu.or_else(fs::peak_resident_bytes) }
    }
}

/// What was planned for this device, and by how much the run differs; none where there is no plan of it in the
/// folder. A file that is no plan is none: it is nothing that a run needs.
pub(in crate::commands) fn compared(folder: &Path, machine: &Machine, taken: Taken) -> Vec<String> {
    let gpu = cuda::properties(&machine.device);
    let gpu = gpu.and_then(|gpu| Rentable::ALL.into_iter().find(|known| known.driver_name == gpu.name));
    let text = fs::read_text_capped(&folder.join(PLAN), CAP_BYTES).ok();
    let plan: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    let device = if machine.device.is_cpu() { Some(CPU) } else { gpu.map(|gpu| gpu.name) };
    plan.map(|plan| lines(&plan, device, taken)).unwrap_or_default()
}

/// The row of this machine, else the one of this device.
fn lines(plan: &Value, device: Option<&str>, taken: Taken) -> Vec<String> {
    let rows = || plan["devices"].as_array().into_iter().flatten();
    let of = |name: &str| rows().find(|row| row["device"] == name && row["fits"] == true);
    let Some(row) = of(HERE).or_else(|| of(device?)) else { return Vec::new() };
    let number = |value: &Value| value.as_f64().filter(|number| *number > 0.0);
    let Some(((tokens, seconds), bytes)) =
        number(&plan["tokens"]).zip(number(&row["train_seconds"])).zip(number(&row["memory_bytes"]))
    else {
        return Vec::new();
    };
    let how = if row["measured"] == true { "measured" } else { "predicted" };
    let mut lines =
        vec![format!("{} for steps, {} ({how} by `plan`)", format_span(seconds), format_bytes(bytes as u64))];
    let took = taken.tokens / taken.tokens_per_second.max(1e-9);
    let memory = taken
        .peak_bytes
        .map(|peak| format!("; {}, {}", format_bytes(peak), apart(peak as f64, bytes, ["more", "less"])));
    // A run that ended early, or was given other steps since, is compared by its speed.
    let planned = seconds * taken.tokens / tokens;
    // Rows are not quite full.
    let share = if (taken.tokens / tokens - 1.0).abs() > 0.05 {
        format!(" ({:.0} % of the planned tokens)", 100.0 * taken.tokens / tokens)
    } else {
        String::new()
    };
    let memory = memory.unwrap_or_default();
    let speed = apart(took, planned, ["slower", "faster"]);
    lines.push(format!("{}, {speed} than planned{share}{memory}", format_span(took)));
    lines
}

/// By how many percent of what was planned it is above that or below.
fn apart(actual: f64, planned: f64, [above, below]: [&str; 2]) -> String {
    let percent = 100.0 * (actual / planned - 1.0);
    format!("{:.0} % {}", percent.abs(), if percent < 0.0 { below } else { above })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_held_against_the_row_of_its_device() {
        let row = |device: &str, seconds: f64, measured: bool| {
            json!({"device": device, "fits": true, "measured": measured, "train_seconds": seconds,
                   "memory_bytes": 1_u64 << 30})
        };
        let plan = json!({"tokens": 1000, "devices": [row("h100", 50.0, false), row("here", 100.0, true)]});
        let taken = Taken { tokens: 1000.0, tokens_per_second: 8.0, peak_bytes: Some((1 << 30) + (1 << 29)) };
        let found = lines(&plan, None, taken);
        assert_eq!(
            found,
            [
                "1.7 minutes for steps, 1GiB (measured by `plan`)",
                "2.1 minutes, 25 % slower than planned; 1.5GiB, 50 % more"
            ]
        );
        let half = Taken { tokens: 500.0, peak_bytes: None, ..taken };
        assert_eq!(
            lines(&plan, None, half)[1],
            "1 minute, 25 % slower than planned (50 % of the planned tokens)"
        );
        let rented = json!({"tokens": 1000, "devices": [row("h100", 125.0, false)]});
        assert_eq!(
            lines(&rented, Some("h100"), half)[1],
            "1 minute, 0 % slower than planned (50 % of the planned tokens)"
        );
        assert!(lines(&rented, None, taken).is_empty() && lines(&json!([]), None, taken).is_empty());
    }
}
