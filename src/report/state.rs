//! Whether a run goes on, has ended, or waits to be continued.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::fs;
use crate::report::find::seeds_of;
use crate::train::results;
use crate::train::run_folder::METRICS;

/// What has become of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A process holds its folder.
    Running,
    /// It has its results.
    Complete,
    /// It ended with exit code 76.
    Diverged,
    /// It goes on when it is started again.
    Stopped,
}

impl State {
    /// That of the run in `folder`, which has these `results`.
    pub fn of(folder: &Path, results: &BTreeMap<String, f64>) -> Result<Self> {
        Ok(if fs::is_locked(folder) {
            Self::Running
        } else if results::are_whole(results) {
            Self::Complete
        } else if let Some(of_seeds) = Self::of_seeds(folder)? {
            of_seeds
        } else if fs::list(folder)?.iter().any(|entry| is_diverged(entry)) {
            Self::Diverged
        } else {
            Self::Stopped
        })
    }

    /// The state of a folder with the runs of several seeds; `None` for any other folder.
    fn of_seeds(folder: &Path) -> Result<Option<Self>> {
        if fs::exists(&folder.join(METRICS)) {
            return Ok(None);
        }
        let mut states = Vec::new();
        for seed in seeds_of(folder)? {
            // A seed whose results cannot be read has none, like a single run.
            states.push(Self::of(&seed, &results::read(&seed).unwrap_or_default())?);
        }
        // A state that needs attention wins.
        let first = [Self::Running, Self::Stopped, Self::Diverged, Self::Complete];
        Ok(first.into_iter().find(|state| states.contains(state)))
    }

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Diverged => "diverged",
            Self::Stopped => "stopped",
        }
    }
}

fn is_diverged(entry: &Path) -> bool {
    entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with("diverged-"))
}
