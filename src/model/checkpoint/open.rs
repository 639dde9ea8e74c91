//! A finished checkpoint, which is verified before any part of it is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::Tensor;

use crate::checkpoint::tensor_file::TensorFile;
use base::error::Problem;
use base::fs;
use base::sealed::Manifest;

const JSON_CAP_BYTES: u64 = 256 << 20;

/// A checkpoint folder whose files all have the size and hash of the manifest.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
}

impl Checkpoint {
    /// Opens the folder at `path` and reads every byte of it. The error names the first bad file and what is
    /// wrong with it.
    pub fn open(path: &Path) -> Result<Self> {
        let manifest = Manifest::read(path)?;
        for entry in &manifest.files {
            entry.verify(path)?;
        }
        Ok(Self { path: path.to_path_buf(), manifest })
    }

    /// Number of updates done when the checkpoint was saved.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of its files, in the order in which they were written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.iter().map(|entry| entry.name.as_str())
    }

    /// Reads a JSON part.
    pub fn json(&self, name: &str) -> Result<serde_json::Value> {
        let path = self.path_of(name)?;
        let bytes = fs::read_capped(&path, JSON_CAP_BYTES)?;
        serde_json::from_slice(&bytes)
            .map_err(|e| Problem::new(format!("is not valid JSON: {e}")).at(path.display()).into())
    }

    /// Reads the tensors of a part, by name, on the CPU.
    pub fn tensors(&self, name: &str) -> Result<BTreeMap<String, Tensor>> {
        TensorFile::open(&self.path_of(name)?)?.tensors()
    }

    /// Reads the bytes of a part; more than `cap_bytes` are an error.
    pub fn bytes(&self, name: &str, cap_bytes: u64) -> Result<Vec<u8>> {
        fs::read_capped(&self.path_of(name)?, cap_bytes)
    }

    fn path_of(&self, name: &str) -> Result<PathBuf> {
        if self.names().any(|known| known == name) {
            return Ok(self.path.join(name));
        }
        Err(Problem::new(format!("there is no part `{name}` in this checkpoint"))
            .at(self.path.display())
            .into())
    }
}
