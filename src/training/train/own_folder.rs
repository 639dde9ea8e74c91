//! Guards the folder of a run against another run that takes its path: a user may remove or move the folder
//! during the run, and start another run with the same name.

use std::path::{Path, PathBuf};

use anyhow::Result;

use base::error::Problem;
use base::fs;

/// A folder, and the identity of the lock file that this run has in it.
pub(super) struct OwnFolder {
    path: PathBuf,
    lock: Option<(u64, u64)>,
}

impl OwnFolder {
    /// Records the lock of this run in the folder at `path`.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), lock: fs::lock_identity(path) }
    }

    /// Returns an error if another run has locked a new folder at this path. A missing folder is not an
    /// error: it is created again.
    pub(super) fn require(&self) -> Result<()> {
        match (self.lock, fs::lock_identity(&self.path)) {
            (Some(own), Some(now)) if own != now => {
                Err(Problem::new("was removed while this run was computing, and another run is there now")
                    .at(self.path.display())
                    .hint("nothing more is written there; begin this run again in another `run.output_dir`")
                    .into())
            }
            _ => Ok(()),
        }
    }
}
