//! The state of a run: running, complete, diverged, dropped out or stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::fs;
use crate::report::find::seeds_of;
use crate::train::results;
use crate::train::run_folder::METRICS;
use crate::trials::tune;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A process has locked the folder.
    Running,
    /// The run has written its results.
    Complete,
    /// Training diverged (exit code 76).
    Diverged,
    /// A tuning trains other candidates to the end.
    DroppedOut,
    /// The run is not complete; the same command resumes it.
    Stopped,
}

impl State {
    /// Determines the state of the run in `folder` with these `results` (of its `all_results.json`).
    pub fn read(folder: &Path, results: &BTreeMap<String, f64>) -> Result<Self> {
        Ok(if fs::is_locked(folder) {
            Self::Running
        } else if results::are_whole(results) {
            Self::Complete
        } else if let Some(of_seeds) = Self::of_seeds(folder)? {
            of_seeds
        } else if diverged_folder(folder)?.is_some() {
            Self::Diverged
        } else if has_dropped_out(folder) {
            Self::DroppedOut
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
            // Results that cannot be read count as missing, as they do for a single run.
            states.push(Self::read(&seed, &results::read(&seed).unwrap_or_default())?);
        }
        // If the seeds differ, the state that needs most attention is the state of all.
        let first = [Self::Running, Self::Stopped, Self::Diverged, Self::DroppedOut, Self::Complete];
        Ok(first.into_iter().find(|state| states.contains(state)))
    }

    /// Returns true if the run may resume from a checkpoint when its command is given again.
    pub fn can_go_on(self) -> bool {
        matches!(self, Self::Running | Self::Diverged | Self::Stopped)
    }

    /// The name of the state in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Diverged => "diverged",
            Self::DroppedOut => "dropped out",
            Self::Stopped => "stopped",
        }
    }
}

/// Returns true if the run in `folder` is of a tuning that trains it no further. A record that cannot be
/// read counts as none; the page says so where it shows the tuning.
fn has_dropped_out(folder: &Path) -> bool {
    let tuning = folder.parent().and_then(|parent| tune::overview(parent).ok().flatten());
    tuning.is_some_and(|tuning| tuning.dropped_out.iter().any(|name| folder.ends_with(name)))
}

/// Returns the folder of the step in which the run in `folder` diverged, if it did.
pub(super) fn diverged_folder(folder: &Path) -> Result<Option<PathBuf>> {
    Ok(fs::list(folder)?
        .into_iter()
        .rfind(|entry| entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with("diverged-"))))
}
