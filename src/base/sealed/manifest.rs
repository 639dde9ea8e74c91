//! `manifest.json`: the size and SHA-256 of each file of a checkpoint. It is written last and sealed with a
//! hash of itself.
//!
//! safetensors accepts flipped bits in its data; the hashes do not.

use std::io::Read;
use std::path::{Component, Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Problem;
use crate::fs;

pub(super) const FILE_NAME: &str = "manifest.json";
const FORMAT_VERSION: u32 = 1;
const CAP_BYTES: u64 = 1 << 20;

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Path relative to the folder.
    pub name: String,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// The whole manifest. Unknown fields are an error: a newer writer raises `format_version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format_version: u32,
    writer: String,
    /// Step of the run at which the files were written; 0 for files of no step.
    pub step: u64,
    /// The files in the order in which they were written.
    pub files: Vec<Entry>,
    /// Hash of this manifest with this field empty.
    seal: String,
}

impl Manifest {
    /// The manifest of files that were just written.
    pub(super) fn new(step: u64, files: Vec<Entry>) -> Self {
        let writer = concat!("mlmtrain ", env!("CARGO_PKG_VERSION")).to_string();
        let mut manifest = Self { format_version: FORMAT_VERSION, writer, step, files, seal: String::new() };
        manifest.seal = manifest.computed_seal();
        manifest
    }

    /// The bytes of the manifest's file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers always have a JSON form")
    }

    /// Reads and checks the manifest of a folder, without looking at the files that it names.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        if !fs::exists(&path) {
            return Err(Problem::new("there is no `manifest.json`, so this is no complete checkpoint")
                .at(folder.display())
                .into());
        }
        let bytes = fs::read_capped(&path, CAP_BYTES)?;
        Self::parse(&bytes).map_err(|problem| problem.at(path.display()).into())
    }

    /// The manifest of a folder; `None` if there is no `manifest.json`, or one of another program.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE_NAME);
        if !fs::exists(&path) {
            return Ok(None);
        }
        // A manifest of this program that is damaged in one place has at least one of these keys.
        let of_another = serde_json::from_slice::<Value>(&fs::read_capped(&path, CAP_BYTES)?)
            .is_ok_and(|value| value.get("seal").is_none() && value.get("files").is_none());
        if of_another { Ok(None) } else { Self::read(folder).map(Some) }
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|e| Problem::new(format!("is not a manifest of a checkpoint: {e}")))?;
        if manifest.format_version != FORMAT_VERSION {
            return Err(Problem::new(format!(
                "has format version {}, this program reads {FORMAT_VERSION}",
                manifest.format_version
            )));
        }
        if manifest.seal != manifest.computed_seal() {
            return Err(Problem::new("does not match its own SHA-256: it was damaged or edited"));
        }
        match manifest.files.iter().find(|entry| !is_safe_name(&entry.name)) {
            Some(entry) => {
                Err(Problem::new(format!("names a file outside the checkpoint: `{}`", entry.name)))
            }
            None => Ok(manifest),
        }
    }

    fn computed_seal(&self) -> String {
        let unsealed = Self { seal: String::new(), ..self.clone() };
        fs::sha256_of(&[&unsealed.to_bytes()])
    }
}

impl Entry {
    /// Reads the file in `folder` and compares its size and hash.
    pub fn verify(&self, folder: &Path) -> Result<()> {
        self.verify_with_progress(folder, &|_| {})
    }

    /// Same as [`Entry::verify`]; `read` is called with the number of bytes that each read returned.
    pub fn verify_with_progress(&self, folder: &Path, read: &dyn Fn(u64)) -> Result<()> {
        let path = folder.join(&self.name);
        let bytes = fs::len_bytes(&path)?;
        if bytes != self.bytes {
            return Err(Problem::new(format!("has {bytes} bytes, the manifest says {}", self.bytes))
                .at(path.display())
                .into());
        }
        let reader = Reporting { inner: fs::open(&path)?, read };
        let found =
            fs::sha256_of_reader(reader).with_context(|| format!("cannot read `{}`", path.display()))?;
        if found != self.sha256 {
            let message = format!(
                "has SHA-256 {found}, the manifest says {}: the file was damaged or changed",
                self.sha256
            );
            return Err(Problem::new(message).at(path.display()).into());
        }
        Ok(())
    }
}

/// A reader that reports the number of bytes that each read returned.
struct Reporting<'a, R> {
    inner: R,
    read: &'a dyn Fn(u64),
}

impl<R: Read> Read for Reporting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        (self.read)(count as u64);
        Ok(count)
    }
}

/// Returns true if a name stays inside the checkpoint's folder: it is relative, without `..`, `.` or empty
/// pieces.
pub(super) fn is_safe_name(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && name.split('/').all(|piece| !piece.is_empty() && piece != ".")
        && Path::new(name).components().all(|component| matches!(component, Component::Normal(_)))
}
