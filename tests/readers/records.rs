//! Records of a run that a later one reads: its log and its results.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mlmtrain::telemetry::MetricsLog;
use mlmtrain::train::results;

use super::{Input, Outcome, Runs};

const TARGET: &str = "records";

pub(super) fn all(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let input = |name: &str, read: fn(&Path) -> Outcome| {
        let bytes = fs::read(runs.pretrained(name))?;
        anyhow::Ok(Input::new(TARGET, name, folder.join(format!("run-{name}")).join(name), bytes, read))
    };
    Ok(vec![input("metrics.jsonl", metrics)?, input("all_results.json", read_results)?])
}

/// As a run reads it that goes on behind its first step.
fn metrics(path: &Path) -> Outcome {
    MetricsLog::open(path, Some(1))?;
    Ok(1)
}

fn read_results(path: &Path) -> Outcome {
    let found = results::read(path.parent().context("it lies in a folder")?)?;
    results::are_whole(&found);
    Ok(1)
}
