//! The text output of `doctor`: a table for each part of the machine.

use std::fmt::Display;
use std::path::Path;

use crate::instructions::VARIABLE;
use crate::machine::survey::{Gpus, Libraries, Memory, Processor, Room, Run, Survey};
use crate::machine::threads_text;
use crate::quantity::format_bytes;
use crate::telemetry::GpuFacts;

/// Width of the first column.
const NAME_WIDTH: usize = 22;

/// The text for a value that is not known.
const UNKNOWN: &str = "unknown";

/// Returns the lines of all tables.
pub(super) fn lines(survey: &Survey) -> Vec<String> {
    let parts = [
        ("processor", processor(&survey.processor)),
        ("memory", memory(&survey.memory)),
        ("GPUs", gpus(&survey.gpus)),
        ("CUDA libraries", libraries(&survey.cuda_libraries)),
        ("free disk", survey.disk.iter().map(room).collect()),
        ("a run would take", run(&survey.run)),
    ];
    let mut lines = vec![format!("mlmtrain {}", survey.version)];
    for (title, rows) in parts {
        lines.push(title.to_string());
        lines.extend(rows.into_iter().map(|(name, text)| format!("  {name:NAME_WIDTH$} {text}")));
    }
    lines
}

type Row = (String, String);

fn row(name: &str, text: impl Display) -> Row {
    (name.to_string(), text.to_string())
}

fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| UNKNOWN.to_string(), |value| value.to_string())
}

fn bytes(value: Option<u64>) -> String {
    known(value.map(format_bytes))
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".to_string(), |value| value.to_string())
}

fn path(path: Option<&Path>) -> String {
    known(path.map(Path::display))
}

fn processor(of: &Processor) -> Vec<Row> {
    let products = of.products.iter().map(|product| {
        let widened = if product.widened { " (widened to f32)" } else { "" };
        format!("{} by {}{widened}", product.compute, product.instructions)
    });
    let cap = match of.cap {
        None => format!("none ({VARIABLE} is not set)"),
        Some(cap) if cap == of.in_use => format!("{VARIABLE}={cap}"),
        Some(cap) => format!("{VARIABLE}={cap}, which has no effect"),
    };
    let features = if of.features.is_empty() { UNKNOWN.to_string() } else { of.features.join(" ") };
    vec![
        row("model", known(of.model.as_deref())),
        row("architecture", of.architecture),
        row("cores", format!("{}, threads {}", known(of.cores), known(of.threads))),
        row("this process may use", of.affinity.map_or_else(|| UNKNOWN.to_string(), threads_text)),
        row("control group's quota", or_none(of.group_cpus.map(|cpus| format!("{cpus:.2} processors")))),
        row("instructions", features),
        row("best set of them", of.instructions),
        row("cap", cap),
        row("products", products.collect::<Vec<_>>().join(", ")),
    ]
}

fn memory(of: &Memory) -> Vec<Row> {
    let group = of
        .group_limit_bytes
        .map(|limit| format!("{}, of which {} are left", format_bytes(limit), bytes(of.group_room_bytes)));
    let pages = match of.huge_pages.as_deref() {
        Some("never") => "never: products and updates are slower than with `madvise` or `always`".to_string(),
        setting => known(setting),
    };
    vec![
        row("free", format!("{} of {}", bytes(of.available_bytes), bytes(of.total_bytes))),
        row("control group's limit", or_none(group)),
        row("free for a run", bytes(of.free_bytes)),
        row("huge pages", pages),
    ]
}

fn gpus(of: &Gpus) -> Vec<Row> {
    let code = match of.code_for {
        Some(code) => format!("yes, for {code}"),
        None if of.built_with_cuda => "yes".to_string(),
        None => "no: this program was built without CUDA (feature `cuda`)".to_string(),
    };
    let mut rows = vec![
        row("code for GPUs", code),
        row("driver", of.driver.clone().unwrap_or_else(|| "not found".to_string())),
    ];
    if of.list.is_empty() {
        rows.push(row("GPUs of NVIDIA", "none"));
    }
    rows.extend(of.list.iter().enumerate().map(|(number, gpu)| row(&format!("GPU {number}"), words(gpu))));
    rows
}

fn words(gpu: &GpuFacts) -> String {
    format!(
        "{}, compute capability {}, {} of {} free",
        known(gpu.name.as_deref()),
        known(gpu.compute_capability.as_deref()),
        bytes(gpu.free_bytes),
        bytes(gpu.total_bytes)
    )
}

fn libraries(of: &Libraries) -> Vec<Row> {
    let found = of.found.iter().map(|library| {
        row(
            library.name,
            library.path.as_ref().map_or_else(|| "not found".to_string(), |p| p.display().to_string()),
        )
    });
    let mut rows: Vec<Row> = found.collect();
    if of.found.iter().any(|library| library.path.is_none()) {
        for looked in &of.looked_in {
            let folders: Vec<String> =
                looked.folders.iter().map(|folder| folder.display().to_string()).collect();
            let folders = if folders.is_empty() { "none".to_string() } else { folders.join(", ") };
            rows.push(row("looked in", format!("{}: {folders}", looked.because)));
        }
    }
    rows
}

fn room(of: &Room) -> Row {
    row(of.name, format!("{} in {}", bytes(of.free_bytes), path(of.path.as_deref())))
}

fn run(of: &Run) -> Vec<Row> {
    if let Some(why) = &of.refused {
        return vec![row("nothing", format!("it would be refused: {why}"))];
    }
    let mut rows = vec![
        row("device", known(of.device.as_deref())),
        row("compute", known(of.compute)),
        row("threads", known(of.threads)),
    ];
    rows.extend(of.notes.iter().map(|note| row("note", note)));
    rows
}
