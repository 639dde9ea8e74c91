//! Where runs are: folders with a configuration and records.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::Result;

use crate::error::Problem;
use crate::fs;
use crate::train::run_folder::METRICS;

/// Folders within folders that are looked into: a run lies at the top of what somebody keeps.
const DEEPEST: usize = 4;

/// Runs that were found, and the folders on the way that could not be looked into.
#[derive(Debug, Default)]
pub struct Found {
    /// Folders of runs, in the order of their names.
    pub runs: Vec<PathBuf>,
    /// Why each of the others could not be read.
    pub unread: Vec<Error>,
}

/// Folders of runs below a folder, or itself. What lies in a run is its own.
pub fn find(folder: &Path) -> Result<Found> {
    let mut found = Found::default();
    find_in(folder, DEEPEST, &is_run, &mut found)?;
    Ok(found)
}

/// The runs that a user means by a folder: itself, or where it only holds others (several seeds, a sweep, a
/// comparison), all of these. One without any run is an error.
pub fn runs_of(folder: &Path) -> Result<Found> {
    if !fs::is_folder(folder) {
        let problem = Problem::usage("is no folder").at(folder.display());
        return Err(problem
            .hint("name the folder of a run: the `run.output_dir` of its configuration")
            .into());
    }
    let mut found = Found::default();
    find_in(folder, DEEPEST, &has_records, &mut found)?;
    if found.runs.is_empty() && is_run(folder) {
        found.runs.push(folder.to_path_buf());
    }
    if found.runs.is_empty() {
        if let Some(error) = found.unread.into_iter().next() {
            return Err(error);
        }
        let problem = Problem::usage(format!("holds no run: no `{METRICS}` is in it")).at(folder.display());
        return Err(problem.hint("`mlmtrain runs DIR` lists the runs below a folder").into());
    }
    Ok(found)
}

fn find_in(folder: &Path, deep: usize, is_wanted: &dyn Fn(&Path) -> bool, found: &mut Found) -> Result<()> {
    if is_wanted(folder) {
        found.runs.push(folder.to_path_buf());
        return Ok(());
    }
    if deep == 0 {
        return Ok(());
    }
    for entry in fs::list(folder)?.into_iter().filter(|entry| fs::is_folder(entry)) {
        // One that cannot be read hides no others.
        if let Err(error) = find_in(&entry, deep - 1, is_wanted, found) {
            found.unread.push(error);
        }
    }
    Ok(())
}

fn is_run(folder: &Path) -> bool {
    let has = |name: &str| fs::exists(&folder.join(name));
    has("config.yaml") && (has(METRICS) || has("all_results.json"))
}

fn has_records(folder: &Path) -> bool {
    fs::exists(&folder.join(METRICS))
}
