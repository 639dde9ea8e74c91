//! Where runs are: folders with a configuration and records.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::error::Problem;
use crate::fs;
use crate::train::run_folder::METRICS;

/// Folders within folders that are looked into: a run lies at the top of what somebody keeps.
const DEEPEST: usize = 4;

/// Folders of runs below a folder, or itself, in the order of their names. What lies in a run is its own.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    find_in(folder, DEEPEST, &is_run, &mut found)?;
    Ok(found)
}

/// The runs that a user means by a folder: itself, or where it only holds others (several seeds, a sweep, a
/// comparison), all of these. One without any run is an error.
pub fn runs_of(folder: &Path) -> Result<Vec<PathBuf>> {
    if !fs::is_folder(folder) {
        let problem = Problem::usage("is no folder").at(folder.display());
        return Err(problem
            .hint("name the folder of a run: the `run.output_dir` of its configuration")
            .into());
    }
    let mut found = Vec::new();
    find_in(folder, DEEPEST, &has_records, &mut found)?;
    if found.is_empty() && is_run(folder) {
        found.push(folder.to_path_buf());
    }
    if found.is_empty() {
        let problem = Problem::usage(format!("holds no run: no `{METRICS}` is in it")).at(folder.display());
        return Err(problem.hint("`mlmtrain runs DIR` lists the runs below a folder").into());
    }
    Ok(found)
}

fn find_in(
    folder: &Path,
    deep: usize,
    is_wanted: &dyn Fn(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) -> Result<()> {
    if is_wanted(folder) {
        found.push(folder.to_path_buf());
        return Ok(());
    }
    if deep == 0 {
        return Ok(());
    }
    for entry in fs::list(folder)?.into_iter().filter(|entry| fs::is_folder(entry)) {
        find_in(&entry, deep - 1, is_wanted, found)?;
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
