//! `bench --most-rows-on`: the most rows that GPUs of given sizes should hold, from the forecast alone.

use anyhow::Result;

use crate::commands::terminal;
use crate::quantity::format_bytes;
use crate::train::batch_size::GPU_RESERVE_BYTES;
use crate::train::bench::Case;

/// More rows than any table needs.
const MOST: usize = 1 << 14;

/// Prints a line for each model, length and type, without and with gradient checkpointing.
pub(super) fn print(rows: &[(String, Case)], sizes: &[u64]) -> Result<()> {
    let sized = sizes.iter().map(|bytes| format_bytes(*bytes));
    terminal::stdout_line(&line("model", "length", "type", "checkpointing", sized))?;
    for (name, case) in rows {
        for (on, word) in [(false, "no"), (true, "yes")] {
            let found: Result<Vec<usize>> = sizes.iter().map(|bytes| most_rows(case, on, *bytes)).collect();
            let (length, found) = (case.length.to_string(), found?);
            let found = found.iter().map(usize::to_string);
            terminal::stdout_line(&line(name, &length, case.compute.name(), word, found))?;
        }
    }
    Ok(())
}

fn line(model: &str, length: &str, compute: &str, word: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| format!("{cell:>9}")).collect();
    format!("{model:14} {length:>6}  {compute:5} {word:13}{}", cells.concat())
}

/// The most rows of a step that are predicted to fit into `bytes` of a GPU; 0 where not even one does.
fn most_rows(case: &Case, gradient_checkpointing: bool, bytes: u64) -> Result<usize> {
    let room = bytes.saturating_sub(GPU_RESERVE_BYTES);
    let fits = |rows: usize| {
        let case = Case { rows, gradient_checkpointing, ..case.clone() };
        anyhow::Ok(case.predicted_bytes(true)? <= room)
    };
    let (mut fitting, mut beyond) = (0, MOST + 1);
    while beyond - fitting > 1 {
        let middle = usize::midpoint(fitting, beyond);
        *(if fits(middle)? { &mut fitting } else { &mut beyond }) = middle;
    }
    Ok(fitting)
}
