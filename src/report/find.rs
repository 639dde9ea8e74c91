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

/// What the folders of several seeds are called, before the seed.
const SEED: &str = "seed-";

/// Runs that were found, and the folders on the way that could not be looked into.
#[derive(Debug, Default)]
pub struct Found {
    /// Folders of runs, in the order of their names.
    pub runs: Vec<PathBuf>,
    /// Why each of the others could not be read.
    pub unread: Vec<Error>,
}

/// Finds the folders of runs in a folder, or the folder itself. Folders inside a run are not searched, except for
/// the runs of its seeds, which follow it.
pub fn find(folder: &Path) -> Result<Found> {
    Search::new(folder, is_run, true).found()
}

/// The folders of the seeds of a run.
pub(super) fn seeds_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_seed = |entry: &PathBuf| {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(SEED).is_some_and(|seed| seed.parse::<u64>().is_ok()) && fs::is_folder(entry)
    };
    Ok(fs::list(folder)?.into_iter().filter(is_seed).collect())
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
    let mut found = Search::new(folder, has_records, false).found()?;
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

/// A search for folders below another one.
struct Search {
    folder: PathBuf,
    is_wanted: fn(&Path) -> bool,
    with_seeds: bool,
    found: Found,
}

impl Search {
    fn new(folder: &Path, is_wanted: fn(&Path) -> bool, with_seeds: bool) -> Self {
        Self { folder: folder.to_path_buf(), is_wanted, with_seeds, found: Found::default() }
    }

    fn found(mut self) -> Result<Found> {
        self.look_into(&self.folder.clone(), DEEPEST)?;
        Ok(self.found)
    }

    fn look_into(&mut self, folder: &Path, deep: usize) -> Result<()> {
        let below = if (self.is_wanted)(folder) {
            self.found.runs.push(folder.to_path_buf());
            if self.with_seeds { seeds_of(folder)? } else { Vec::new() }
        } else {
            fs::list(folder)?
        };
        if deep == 0 {
            return Ok(());
        }
        // The link of a sweep to its best run is a second name of what is found anyway.
        let root = fs::canonical(&self.folder);
        let is_second_name = |entry: &Path| fs::is_link(entry) && fs::canonical(entry).starts_with(&root);
        for entry in below.iter().filter(|entry| fs::is_folder(entry) && !is_second_name(entry)) {
            // One that cannot be read hides no others.
            if let Err(error) = self.look_into(entry, deep - 1) {
                self.found.unread.push(error);
            }
        }
        Ok(())
    }
}

fn is_run(folder: &Path) -> bool {
    let has = |name: &str| fs::exists(&folder.join(name));
    has("config.yaml") && (has(METRICS) || has("all_results.json"))
}

fn has_records(folder: &Path) -> bool {
    fs::exists(&folder.join(METRICS))
}
