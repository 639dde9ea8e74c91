//! `mlmtrain checkpoint verify`: checks model folders and prints a line for each; a damaged one does not stop
//! the others.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::commands::checkpoint::args::VerifyArgs;
use crate::commands::checkpoint::inspect::{Verdict, bytes_to_read, is_unsupported};
use crate::commands::checkpoint::models_of;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::telemetry::{Progress, Unit};

pub(super) fn run(args: &VerifyArgs) -> Result<()> {
    let mut folders: Vec<PathBuf> = Vec::new();
    // A folder without a model is an error before anything is read.
    for folder in &args.folders {
        folders.extend(models_of(folder)?);
    }
    let total = folders.iter().map(|folder| bytes_to_read(folder)).fold(0, u64::saturating_add);
    let bar = Progress::detect(terminal::is_quiet()).stage("verifying", Unit::Bytes, Some(total));
    let verdicts: Vec<Verdict> =
        folders.iter().map(|folder| Verdict::read(folder, &|bytes| bar.advance(bytes))).collect();
    bar.finish("done");
    print(&verdicts, args.json)?;
    let damaged: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.is_damaged()).collect();
    let Some(first) = damaged.first() else { return supported(&verdicts) };
    let message = format!("{} of {} folders are damaged", damaged.len(), verdicts.len());
    Err(Problem::new(message)
        .at(first.path.display())
        .hint("use another checkpoint of the run, or fetch the model again")
        .into())
}

/// Returns an error if folders are intact but not supported by this program.
fn supported(verdicts: &[Verdict]) -> Result<()> {
    let others: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.is_right()).collect();
    let Some(first) = others.first() else { return Ok(()) };
    let message =
        format!("{} of {} folders are not supported; none is damaged", others.len(), verdicts.len());
    Err(Problem::usage(message).at(first.path.display()).into())
}

fn print(verdicts: &[Verdict], json: bool) -> Result<()> {
    let mut output = Output::stdout();
    if json {
        let damaged = verdicts.iter().filter(|verdict| verdict.is_damaged()).count();
        let folders: Vec<_> = verdicts.iter().map(Verdict::to_json).collect();
        output.line(&json!({ "damaged": damaged, "folders": folders }).to_string())?;
        return output.finish();
    }
    for verdict in verdicts {
        if verdict.is_right() {
            let line = format!("ok    {}  {}", verdict.path.display(), verdict.summary());
            output.line(&terminal::printable(&line))?;
        }
        for fault in &verdict.faults {
            // A message of several lines is joined into one.
            let what = if is_unsupported(fault) { "NOT SUPPORTED" } else { "BAD" };
            let line = format!("{what:5} {fault:#}").replace("\n  hint: ", "; ").replace("\nerror: ", "; ");
            output.line(&terminal::printable(&line))?;
        }
    }
    output.finish()
}
