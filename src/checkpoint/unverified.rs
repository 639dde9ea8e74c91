//! A folder with a manifest before its files were read: everything that is wrong with it can be told, where
//! [`Checkpoint::open`] stops at the first.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::Result;

use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::open::Checkpoint;

/// What the manifest of a folder says, true or not.
#[derive(Debug)]
pub struct Unverified {
    path: PathBuf,
    manifest: Manifest,
}

impl Unverified {
    /// The folder at `path`; none where there is no `manifest.json`, or one of some other program. A damaged
    /// manifest is an error.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let manifest = Manifest::find(path)?;
        Ok(manifest.map(|manifest| Self { path: path.to_path_buf(), manifest }))
    }

    /// The step that it says it is of.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// How many files it names.
    pub fn files(&self) -> usize {
        self.manifest.files.len()
    }

    /// Bytes of these files.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Reads every byte; `read` is told how many more. An error for each file that is not as the manifest
    /// says.
    pub fn verify(self, read: &dyn Fn(u64)) -> Result<Checkpoint, Vec<Error>> {
        let Self { path, manifest } = self;
        let wrong = manifest.files.iter().filter_map(|entry| entry.verify_and_tell(&path, read).err());
        let wrong: Vec<Error> = wrong.collect();
        if wrong.is_empty() { Ok(Checkpoint { path, manifest }) } else { Err(wrong) }
    }
}
