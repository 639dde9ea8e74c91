//! `mlmtrain checkpoint list`: the checkpoints of a run as a table.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use serde_json::{Value, json};

use crate::checkpoint::{Checkpoint, Unverified};
use crate::commands::checkpoint::args::ListArgs;
use crate::commands::checkpoint::store_of_run;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::fs;
use crate::quantity::{format_age, format_bytes};
use crate::telemetry::{Progress, Stage, Unit};
use crate::train::checkpoint_files::Resumed;
use crate::train::run_folder::FINAL;

/// A line of the table: a checkpoint, or the final model.
struct Row {
    path: PathBuf,
    /// Step in the name of the folder; `None` for the final model.
    step: Option<u64>,
    /// Time of the save, in seconds since 1970.
    saved: Option<u64>,
    bytes: u64,
    is_best: bool,
    eval_loss: Option<f64>,
    /// The reason why it cannot be used, if so.
    fault: Option<String>,
}

pub(super) fn run(args: &ListArgs) -> Result<()> {
    let store = store_of_run(&args.folder)?;
    let steps = store.steps()?;
    let last = args.folder.join(FINAL);
    let paths: Vec<PathBuf> = steps.iter().map(|&step| store.path_of(step)).collect();
    let total = paths.iter().chain([&last]).map(|path| bytes_of_manifest(path)).fold(0, u64::saturating_add);
    let bar = Progress::detect(terminal::is_quiet()).stage("verifying", Unit::Bytes, Some(total));
    let mut rows = Vec::new();
    let mut best = None;
    // The newest intact checkpoint knows which checkpoint is the best.
    for (path, step) in paths.into_iter().zip(steps).rev() {
        let (row, resumed) = row(path, Some(step), &bar);
        if let Some(resumed) = resumed {
            best = best.or(Some(resumed.state.best.step()));
        }
        rows.push(row);
    }
    rows.reverse();
    let best = best.flatten();
    for row in &mut rows {
        row.is_best = best.is_some() && row.step == best;
    }
    if fs::is_folder(&last) {
        rows.push(row(last, None, &bar).0);
    }
    bar.finish("done");
    // A running training may have deleted a checkpoint meanwhile.
    rows.retain(|row| row.fault.is_none() || fs::is_folder(&row.path));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    if args.json {
        let checkpoints: Vec<Value> = rows.iter().map(|row| row.to_json(now)).collect();
        let run = args.folder.display().to_string();
        return terminal::stdout_line(&json!({ "run": run, "checkpoints": checkpoints }).to_string());
    }
    let mut output = Output::stdout();
    for line in table(&rows, now) {
        output.line(&terminal::printable(&line))?;
    }
    output.finish()
}

fn bytes_of_manifest(path: &Path) -> u64 {
    Unverified::find(path).ok().flatten().map_or(0, |manifest| manifest.bytes())
}

/// Verifies a checkpoint, or the final model if `step` is `None`. Returns its row, and for a checkpoint the
/// state that a run would resume from.
fn row(path: PathBuf, step: Option<u64>, bar: &Stage) -> (Row, Option<Resumed>) {
    let found = verified(&path, bar).and_then(|checkpoint| match step {
        Some(step) if step != checkpoint.step() => {
            let message = format!("holds step {}, against its name", checkpoint.step());
            Err(Problem::new(message).at(path.display()).into())
        }
        Some(_) => Resumed::read(checkpoint).map(Some),
        None => Ok(None),
    });
    let saved = fs::modified(&path.join("manifest.json")).or_else(|_| fs::modified(&path)).ok();
    let saved = saved.and_then(|time| Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()));
    let bytes = fs::bytes_below(&path).unwrap_or(0);
    let (resumed, fault) = match found {
        Ok(resumed) => (resumed, None),
        Err(e) => (None, Some(format!("{e:#}").replace("\n  hint: ", "; "))),
    };
    let eval_loss = resumed.as_ref().and_then(|resumed| resumed.state.eval_loss());
    (Row { path, step, saved, bytes, is_best: false, eval_loss, fault }, resumed)
}

/// Opens and verifies the checkpoint at `path`. If several files are damaged, the error is that of the first
/// one.
fn verified(path: &Path, bar: &Stage) -> Result<Checkpoint> {
    let manifest = Unverified::find(path)?.ok_or_else(|| {
        Problem::new("there is no `manifest.json`, so it is not complete").at(path.display())
    })?;
    manifest.verify(&|bytes| bar.advance(bytes)).map_err(|faults| {
        faults.into_iter().next().unwrap_or_else(|| Problem::new("is damaged").at(path.display()).into())
    })
}

impl Row {
    fn age_seconds(&self, now: u64) -> Option<u64> {
        self.saved.map(|saved| now.saturating_sub(saved))
    }

    fn to_json(&self, now: u64) -> Value {
        json!({
            "path": self.path.display().to_string(),
            "step": self.step,
            "saved_unix_seconds": self.saved,
            "age_seconds": self.age_seconds(now),
            "bytes": self.bytes,
            "best": self.is_best,
            "valid": self.fault.is_none(),
            "fault": self.fault,
            "eval_loss": self.eval_loss,
        })
    }
}

fn table_line(cells: [&str; 6]) -> String {
    let [step, age, size, best, valid, loss] = cells;
    format!("{step:>10}{age:>10}{size:>12}  {best:<4}  {valid:<5}{loss:>10}").trim_end().to_string()
}

/// Returns the lines of the table, then the reasons why some checkpoints cannot be used.
fn table(rows: &[Row], now: u64) -> Vec<String> {
    let mut lines = vec![table_line(["step", "age", "size", "", "valid", "eval loss"])];
    for row in rows {
        let step = row.step.map_or(FINAL.to_string(), |step| step.to_string());
        let age = row.age_seconds(now).map_or("-".to_string(), format_age);
        let loss = row.eval_loss.map_or("-".to_string(), |loss| format!("{loss:.4}"));
        let best = if row.is_best { "best" } else { "" };
        let valid = if row.fault.is_none() { "yes" } else { "no" };
        lines.push(table_line([&step, &age, &format_bytes(row.bytes), best, valid, &loss]));
    }
    lines.extend(rows.iter().filter_map(|row| row.fault.clone()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_follow_the_table() {
        let rows =
            [row(Some(8), None), row(Some(16), None), row(Some(24), Some("run: is cut")), row(None, None)];
        insta::assert_snapshot!(table(&rows, 1_300).join("\n"), @r"
              step       age        size        valid eval loss
                 8        5m        3MiB        yes           -
                16        5m        3MiB  best  yes      4.2500
                24        5m        3MiB        no            -
             final        5m        3MiB        yes           -
        run: is cut
        ");
    }

    fn row(step: Option<u64>, fault: Option<&str>) -> Row {
        Row {
            path: PathBuf::from("run"),
            step,
            saved: Some(1_000),
            bytes: 3 << 20,
            is_best: step == Some(16),
            eval_loss: (step == Some(16)).then_some(4.25),
            fault: fault.map(str::to_string),
        }
    }
}
