//! The format of a plan: a table for people, JSON for programs.

use serde_json::{Value, json};

use crate::commands::forecast::state_parts;
use crate::commands::plan::Device;
use crate::commands::plan::run::Run;
use crate::estimate::{Estimate, Fitted, PRICES_AS_OF};
use crate::models::memory::PROCESS_BYTES;
use crate::pages::table::Table;
use crate::quantity::{format_amount, format_bytes, format_count, format_span};

/// The plan for one device.
pub(super) struct Row {
    pub(super) device: Device,
    /// The estimate, or the reason why the run is not possible there.
    pub(super) found: Result<Estimate, String>,
    pub(super) watts: Option<f64>,
    pub(super) usd_per_hour: Option<f64>,
    /// Seconds of training that `run.budget_usd` and `run.deadline` allow a run.
    pub(super) affordable_seconds: Option<f64>,
}

/// Returns the lines of the whole plan.
pub(super) fn lines(run: &Run<'_>, rows: &[Row]) -> Vec<String> {
    let work = run.work(run.training());
    let encoder = &run.model().encoder;
    let mut lines = vec![
        format!(
            "model     {} {} x {}, vocabulary {}: {} parameters",
            run.model().family.name,
            encoder.num_hidden_layers,
            encoder.hidden_size,
            format_count(encoder.vocab_size as u64),
            format_count(run.shapes.outline.num_parameters())
        ),
        format!(
            "training  {} steps{}, {} tokens at most",
            format_count(run.steps),
            if run.count() > 1 { format!(" for each of {} seeds", run.count()) } else { String::new() },
            format_count(work.tokens())
        ),
        String::new(),
    ];
    lines.extend(table(rows).lines());
    lines.push(String::new());
    lines.extend(memory(rows));
    if let Some(limit) = run.limit_seconds() {
        for row in rows {
            let Ok(found) = &row.found else { continue };
            let seconds = found.seconds / run.count() as f64;
            if seconds > limit {
                lines.push(format!(
                    "{}: `training.max_train_time` ends it after {}, {:.0} % of the steps",
                    row.device.name(),
                    format_span(limit),
                    100.0 * limit / seconds
                ));
            }
        }
    }
    for row in rows {
        let (Ok(found), Some(affordable)) = (&row.found, row.affordable_seconds) else { continue };
        let seconds = found.seconds / run.count() as f64;
        if seconds > affordable {
            lines.push(format!(
                "{}: `{}` leaves {}, so that there are {:.0} % of the steps, and the learning rate ends with them",
                row.device.name(),
                run.section().limit().unwrap_or_default(),
                format_span(affordable),
                100.0 * affordable / seconds
            ));
        }
    }
    let which = if run.count() > 1 { ", for all seeds one after the other" } else { "" };
    lines
        .push(format!("time is that of training alone{which}: preparing, evaluating and saving come on top"));
    if rows.iter().any(|row| !row.device.is_here()) {
        lines.push(format!(
            "GPUs are predicted, not measured; prices are round figures of {PRICES_AS_OF} for one on demand \
             (yours: `--price h100=1.99` or `--prices FILE`), energy is that of the board at full power"
        ));
    }
    lines
}

/// Returns a row for each device.
fn table(rows: &[Row]) -> Table {
    let header = [
        "device",
        "type",
        "micro-batch",
        "largest",
        "memory",
        "available",
        "tokens/s",
        "time",
        "kWh",
        "USD",
        "",
    ];
    let filled = rows.iter().map(|row| match &row.found {
        Ok(found) => filled(row, found),
        Err(why) => {
            let mut cells = header.map(|_| String::new());
            cells[0] = row.device.name().to_string();
            cells[10].clone_from(why);
            cells
        }
    });
    let rows = filled.map(|cells| cells.into_iter().collect()).collect();
    Table { names: 3, ..Table::new(header, rows) }
}

/// Returns the parts of the memory, one line for consecutive devices with the same parts.
fn memory(rows: &[Row]) -> Vec<String> {
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for row in rows {
        let Ok(found) = &row.found else { continue };
        let name = row.device.name();
        let parts = memory_parts(&found.fitted);
        match groups.last_mut().filter(|(_, last)| *last == parts) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], parts)),
        }
    }
    groups.into_iter().map(|(names, parts)| format!("memory on {}: {parts}", names.join(", "))).collect()
}

fn memory_parts(fitted: &Fitted) -> String {
    let found = &fitted.prediction;
    let state = format!("of {}", state_parts(&fitted.training));
    let parts = [
        (state.as_str(), found.state_bytes),
        ("of activations", found.activation_bytes),
        ("at the largest moment of a step", found.temporary_bytes),
        ("of an evaluation beyond that", found.evaluation_bytes.saturating_sub(found.step_bytes())),
        ("of a checkpoint that is written meanwhile", fitted.peak_bytes() - found.total()),
        ("of the program itself", PROCESS_BYTES),
    ];
    let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
    let parts: Vec<String> = parts.map(|(name, bytes)| format!("{} {name}", format_bytes(*bytes))).collect();
    parts.join(", ")
}

fn amount_or_dash(value: Option<f64>) -> String {
    value.map_or("-".to_string(), format_amount)
}

/// The cells of a device that the run is possible on.
fn filled(row: &Row, found: &Estimate) -> [String; 11] {
    let training = &found.fitted.training;
    let times = training.gradient_accumulation_steps;
    let notes = [
        (times > 1).then(|| format!(", {times} times")),
        training.gradient_checkpointing.is_on().then(|| ", checkpointed".to_string()),
        (!found.fitted.is_as_given).then(|| " (as given it does not fit)".to_string()),
    ];
    let rows = format!("{}{}", training.rows_at_once(), notes.into_iter().flatten().collect::<String>());
    let is_measured = row.device.is_here();
    [
        row.device.name().to_string(),
        found.compute.as_str().to_string(),
        rows,
        format_count(found.fitted.most_rows as u64),
        format_bytes(found.fitted.peak_bytes()),
        format_bytes(found.fitted.room_bytes),
        format_count(found.tokens_per_second as u64),
        format_span(found.seconds),
        amount_or_dash(row.watts.map(|watts| found.kilowatt_hours(watts))),
        amount_or_dash(row.usd_per_hour.map(|usd| found.usd(usd))),
        if is_measured { "measured" } else { "predicted" }.to_string(),
    ]
}

/// The parts of the memory. Steps and evaluations do not overlap, so the peak has the larger of the two.
fn json_parts(fitted: &Fitted) -> Value {
    let prediction = &fitted.prediction;
    json!({
        "state_bytes": prediction.state_bytes,
        "activation_bytes": prediction.activation_bytes,
        "temporary_bytes": prediction.temporary_bytes,
        "evaluation_bytes": prediction.evaluation_bytes,
        "saving_bytes": fitted.peak_bytes() - prediction.total(),
        "process_bytes": PROCESS_BYTES,
    })
}

/// Returns the plan as JSON.
pub(super) fn json(run: &Run<'_>, rows: &[Row]) -> Value {
    let work = run.work(run.training());
    json!({
        "num_parameters": run.shapes.outline.num_parameters(),
        "runs": run.count(),
        "steps": run.steps,
        "tokens": work.tokens(),
        "devices": rows.iter().map(device_json).collect::<Vec<Value>>(),
    })
}

fn device_json(row: &Row) -> Value {
    match &row.found {
        Err(why) => json!({"device": row.device.name(), "fits": false, "problem": why}),
        Ok(found) => {
            let training = &found.fitted.training;
            json!({
                "device": row.device.name(),
                "fits": true,
                "as_given": found.fitted.is_as_given,
                "measured": row.device.is_here(),
                "compute": found.compute.as_str(),
                "per_device_train_batch_size": training.rows_at_once(),
                "gradient_accumulation_steps": training.gradient_accumulation_steps,
                "gradient_checkpointing": training.gradient_checkpointing.is_on(),
                "largest_per_device_train_batch_size": found.fitted.most_rows,
                "memory_bytes": found.fitted.peak_bytes(),
                "memory_parts": json_parts(&found.fitted),
                "room_bytes": found.fitted.room_bytes,
                "tokens_per_second": found.tokens_per_second,
                "train_seconds": found.seconds,
                "kilowatt_hours": row.watts.map(|watts| found.kilowatt_hours(watts)),
                "usd_per_hour": row.usd_per_hour,
                "affordable_seconds": row.affordable_seconds,
                "usd": row.usd_per_hour.map(|usd| found.usd(usd)),
            })
        }
    }
}
