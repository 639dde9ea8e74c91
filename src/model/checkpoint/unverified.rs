//! A folder with a manifest before its files are read. It can report everything that is wrong, while
//! [`Checkpoint::open`] stops at the first error.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result};

use crate::checkpoint::open::Checkpoint;
use base::sealed::Manifest;

/// Content of the manifest of a folder, which may be wrong.
#[derive(Debug)]
pub struct Unverified {
    path: PathBuf,
    manifest: Manifest,
}

impl Unverified {
    /// The folder at `path`; `None` if there is no `manifest.json`, or one of another program. A damaged
    /// manifest is an error.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let manifest = Manifest::find(path)?;
        Ok(manifest.map(|manifest| Self { path: path.to_path_buf(), manifest }))
    }

    /// Step that the manifest names.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Number of files that the manifest names.
    pub fn files(&self) -> usize {
        self.manifest.files.len()
    }

    /// Bytes of these files, according to the manifest.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Reads every byte of the files; `read` is called with the number of bytes that each read returned.
    /// Returns an error for each file that does not match the manifest.
    pub fn verify(self, read: &dyn Fn(u64)) -> Result<Checkpoint, Vec<Error>> {
        let Self { path, manifest } = self;
        let wrong = manifest.files.iter().filter_map(|entry| entry.verify_with_progress(&path, read).err());
        let wrong: Vec<Error> = wrong.collect();
        if wrong.is_empty() { Ok(Checkpoint { path, manifest }) } else { Err(wrong) }
    }
}
