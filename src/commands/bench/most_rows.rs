//! `bench --most-rows-on`: predicts the largest number of rows for GPUs with a given memory, without
//! measuring.

use anyhow::Result;

use crate::commands::terminal;
use crate::quantity::format_bytes;
use crate::train::auto_batch_size::GPU_RESERVE_BYTES;
use crate::train::bench::Case;

/// Largest number of rows that is tried.
const MOST: usize = 1 << 14;

/// Prints a line for each model, length and type, without and with gradient checkpointing.
pub(super) fn print(rows: &[(String, Case)], sizes: &[u64]) -> Result<()> {
    let sized = sizes.iter().map(|bytes| format_bytes(*bytes));
    terminal::stdout_line(&line("model", "length", "type", "checkpointing", sized))?;
    for (name, case) in rows {
        for (on, word) in [(false, "no"), (true, "yes")] {
            let found: Result<Vec<usize>> = sizes.iter().map(|bytes| most_rows(case, on, *bytes)).collect();
            let length = case.length.to_string();
            let found = found?;
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

/// The largest number of rows of a step that is predicted to fit into `bytes` of a GPU; 0 if not even one row
/// fits.
fn most_rows(case: &Case, gradient_checkpointing: bool, bytes: u64) -> Result<usize> {
    let room = bytes.saturating_sub(GPU_RESERVE_BYTES);
    let mut fitting = 0;
    let mut too_many = MOST + 1;
    while too_many - fitting > 1 {
        let rows = usize::midpoint(fitting, too_many);
        let case = Case { rows, gradient_checkpointing, ..case.clone() };
        let fits = case.predicted_bytes(true)? <= room;
        *(if fits { &mut fitting } else { &mut too_many }) = rows;
    }
    Ok(fitting)
}
