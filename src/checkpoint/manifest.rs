//! `manifest.json`: the size and SHA-256 of each file of a checkpoint, written last, and sealed with its own
//! hash.
//!
//! safetensors accepts flipped data bits; nothing here does.

use std::io::Read;
use std::path::Component;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::error::Problem;
use crate::fs;

pub(super) const FILE_NAME: &str = "manifest.json";
const FORMAT_VERSION: u32 = 1;
const CAP_BYTES: u64 = 1 << 20;

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// The whole manifest. Unknown fields are an error: a newer writer raises `format_version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format_version: u32,
    writer: String,
    pub(super) step: u64,
    pub(super) files: Vec<Entry>,
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

    /// The manifest as it is written.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers always have a JSON form")
    }

    /// Reads and checks the manifest of a folder; the files it names are not looked at.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        if !fs::exists(&path) {
            return Err(Problem::new("there is no `manifest.json`, so this is no complete checkpoint")
                .at(folder.display())
                .into());
        }
        let bytes = fs::read_capped(&path, CAP_BYTES)?;
        Self::parse(&bytes).map_err(|problem| problem.at(path.display()).into())
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
            return Err(Problem::new("does not match its own hash: it was damaged or edited"));
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
        hex(&Sha256::digest(unsealed.to_bytes()))
    }
}

impl Entry {
    /// Reads the file in `folder` and compares its size and hash.
    pub(super) fn verify(&self, folder: &Path) -> Result<()> {
        let path = folder.join(&self.name);
        let bytes = fs::len_bytes(&path)?;
        if bytes != self.bytes {
            return Err(Problem::new(format!("has {bytes} bytes, the manifest says {}", self.bytes))
                .at(path.display())
                .into());
        }
        let found = hash_file(&path)?;
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

fn hash_file(path: &Path) -> Result<String> {
    let mut file = fs::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("cannot read `{}`", path.display()))?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

/// Whether a name stays inside the checkpoint's folder: relative, without `..`, `.` or empty pieces.
pub(super) fn is_safe_name(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && name.split('/').all(|piece| !piece.is_empty() && piece != ".")
        && Path::new(name).components().all(|component| matches!(component, Component::Normal(_)))
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
