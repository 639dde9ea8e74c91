//! Finds run folders: folders with a configuration and records.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result};

use crate::corpus::report::{REPORT_HTML, REPORT_JSON};
use crate::error::Problem;
use crate::fs;
use crate::report::sweep;
use crate::train::run_folder::METRICS;
use crate::trials::{comparison, tune};

/// Most levels of folders that are searched.
const DEEPEST: usize = 4;

/// Prefix of the folder names of several seeds.
const SEED: &str = "seed-";

/// The runs of a search, and the errors of folders that could not be read.
#[derive(Debug, Default)]
pub struct Found {
    /// Folders of runs, in the order of their names; numbers in names are ordered by their value.
    pub runs: Vec<PathBuf>,
    /// The error of each folder that could not be read.
    pub unread: Vec<Error>,
}

/// Finds the run folders at or below `folder`. Folders inside a run are not searched, except for the runs of
/// its seeds, which are listed after it.
pub fn find(folder: &Path) -> Result<Found> {
    Search::new(folder, is_run, true).found()
}

/// Returns the folders `seed-N` in the folder of a run with several seeds.
pub(super) fn seeds_of(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(fs::list(folder)?.into_iter().filter(|entry| is_seed(entry) && fs::is_folder(entry)).collect())
}

/// True if the path ends in `seed-N`.
pub(super) fn is_seed(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix(SEED).is_some_and(|seed| seed.parse::<u64>().is_ok())
}

/// Sort key of a path in which numbers are ordered by their value: `seed-2` before `seed-10`.
fn natural(path: &Path) -> (Vec<(String, u64)>, PathBuf) {
    let mut parts = vec![(String::new(), String::new())];
    for character in path.to_string_lossy().chars() {
        let (text, number) = parts.last_mut().expect("there is one part at least");
        match character {
            '0'..='9' => number.push(character),
            _ if number.is_empty() => text.push(character),
            _ => parts.push((character.to_string(), String::new())),
        }
    }
    let parts = parts.into_iter().map(|(text, number)| (text, number.parse().unwrap_or(u64::MAX)));
    (parts.collect(), path.to_path_buf())
}

/// Returns the runs that a user means by a folder: the folder itself if it is a run, or all runs below it if
/// it is the folder of several seeds, a sweep, a tuning or a comparison. Runs of a sweep or tuning are in its
/// order.
///
/// # Errors
/// Returns an error if there is no such folder or no run in it.
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
        let hint = own_page(folder).map_or_else(
            || "`mlmtrain runs DIR` lists the runs below a folder".to_string(),
            |page| format!("it is {page}"),
        );
        return Err(problem.hint(hint).into());
    }
    sweep::sort(&mut found.runs, folder);
    if let Ok(Some(tuning)) = tune::overview(folder) {
        found.runs.sort_by_key(|run| tuning.folders.iter().position(|name| run.ends_with(name)));
    }
    Ok(found)
}

/// Describes a folder to which another command has written a page, and where that page is; `None` for any
/// other folder.
pub fn own_page(folder: &Path) -> Option<String> {
    if let Some([page, table]) = comparison::pages_of(folder) {
        let (page, table) = (page.display(), table.display());
        return Some(format!("the folder of a comparison: its page is `{page}`, its table `{table}`"));
    }
    let page = folder.join(REPORT_HTML);
    let is_corpus = fs::exists(&page) && fs::exists(&folder.join(REPORT_JSON));
    is_corpus.then(|| format!("the folder of a prepared corpus: its page is `{}`", page.display()))
}

/// A search for the folders below `folder` that `is_wanted` accepts.
struct Search {
    folder: PathBuf,
    is_wanted: fn(&Path) -> bool,
    /// True if the seeds of an accepted folder are searched, too.
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
        let mut below = if (self.is_wanted)(folder) {
            self.found.runs.push(folder.to_path_buf());
            if self.with_seeds { seeds_of(folder)? } else { Vec::new() }
        } else {
            fs::list(folder)?
        };
        below.sort_by_cached_key(|entry| natural(entry));
        if deep == 0 {
            return Ok(());
        }
        // A link into the searched folder, such as the link of a sweep to its best run, would list a run
        // twice.
        let root = fs::canonical(&self.folder);
        for entry in below.iter().filter(|entry| fs::is_folder(entry)) {
            if fs::is_link(entry) && fs::canonical(entry).starts_with(&root) {
                continue;
            }
            // A folder that cannot be read must not hide the other folders.
            if let Err(error) = self.look_into(entry, deep - 1) {
                self.found.unread.push(error);
            }
        }
        Ok(())
    }
}

fn is_run(folder: &Path) -> bool {
    let [has_config, has_metrics, has_results] =
        ["config.yaml", METRICS, "all_results.json"].map(|name| fs::exists(&folder.join(name)));
    has_config && (has_metrics || has_results)
}

fn has_records(folder: &Path) -> bool {
    fs::exists(&folder.join(METRICS))
}
