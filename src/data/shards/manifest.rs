//! `manifest.json`: the content of the shards of a folder, with the hash of each. It is written last, so that
//! it exists only if all shards are complete.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::corpus::Side;
use base::error::Problem;
use base::fs;
use base::fs::Sha256Sum;

/// Name of the manifest inside a folder of shards.
pub const MANIFEST_JSON: &str = "manifest.json";

const VERSION: u32 = 2;

const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// One shard file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Name of the file inside the folder.
    pub file: String,
    /// Index of the source that its documents come from.
    pub source: usize,
    /// Number of documents in the shard.
    pub documents: u64,
    /// Number of tokens in the shard.
    pub tokens: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in hexadecimal.
    pub sha256: String,
}

/// One side of the split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitEntry {
    /// Number of documents in all shards.
    pub documents: u64,
    /// Number of tokens in all shards, without special tokens around documents.
    pub tokens: u64,
    /// Number of UTF-8 bytes in the text of these documents.
    pub text_bytes: u64,
    /// The shards in order.
    pub shards: Vec<ShardEntry>,
}

/// Everything about a folder of shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format: 2.
    pub version: u32,
    /// SHA-256 of the settings from which the shards were made.
    pub settings_sha256: String,
    /// Fingerprint of the tokenizer.
    pub tokenizer: String,
    /// Number of entries in its vocabulary; every token id is smaller.
    pub vocab_size: usize,
    /// Names of the sources, in the order of the configuration.
    pub sources: Vec<String>,
    /// Number of documents that were read from the corpus.
    pub documents_read: u64,
    /// Number of documents that are left out because the tokenizer gives them no token at all.
    pub without_tokens: u64,
    /// Shards for training.
    pub train: SplitEntry,
    /// Shards for evaluation.
    pub validation: SplitEntry,
}

impl Manifest {
    /// The version that this program writes and reads.
    pub const VERSION: u32 = VERSION;

    /// Number of documents on both sides.
    pub fn documents(&self) -> u64 {
        self.train.documents.saturating_add(self.validation.documents)
    }

    /// Number of tokens on both sides.
    pub fn tokens(&self) -> u64 {
        self.train.tokens.saturating_add(self.validation.tokens)
    }

    /// SHA-256 of the content of all shards, independent of their folder.
    pub fn content_sha256(&self) -> String {
        let mut sum = Sha256Sum::default();
        for side in [&self.train, &self.validation] {
            // The number of shards of a side goes first, so that the hash changes if a shard moves to the
            // other side.
            sum.add(&(side.shards.len() as u64).to_le_bytes());
            side.shards.iter().for_each(|shard| sum.add(shard.sha256.as_bytes()));
        }
        sum.finish()
    }

    /// The entry of one side of the split.
    pub fn side(&self, side: Side) -> &SplitEntry {
        match side {
            Side::Train => &self.train,
            Side::Validation => &self.validation,
        }
    }

    /// Reads the manifest of `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST_JSON);
        let bytes = fs::read_capped(&path, MANIFEST_BYTES_MAX)?;
        let hint = format!("remove the folder `{}` to prepare the text again", folder.display());
        let manifest: Self = serde_json::from_slice(&bytes)
            .map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()).hint(hint.as_str()))?;
        if manifest.version != VERSION {
            let message = format!("has version {}, this program reads version {VERSION}", manifest.version);
            return Err(Problem::new(message).at(path.display()).hint(hint).into());
        }
        for entry in manifest.train.shards.iter().chain(&manifest.validation.shards) {
            if entry.file.contains(['/', '\\']) || entry.file.starts_with('.') {
                let message = format!(
                    "names the shard `{}`, which is not a plain file name",
                    entry.file.escape_debug()
                );
                return Err(Problem::new(message).at(path.display()).into());
            }
            if entry.source >= manifest.sources.len() {
                let message = format!(
                    "says that `{}` is of source {}, it lists {} sources",
                    entry.file,
                    entry.source,
                    manifest.sources.len()
                );
                return Err(Problem::new(message).at(path.display()).hint(hint).into());
            }
        }
        for side in [&manifest.train, &manifest.validation] {
            if !side.shards.is_sorted_by_key(|entry| entry.source) {
                return Err(Problem::new("lists shards of one source apart from each other")
                    .at(path.display())
                    .hint(hint)
                    .into());
            }
        }
        Ok(manifest)
    }

    /// Writes the manifest of `folder` atomically.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        fs::write_bytes(&folder.join(MANIFEST_JSON), format!("{json}\n").as_bytes())
    }
}

/// `train` or `validation`, as in the names of the files.
pub(super) fn name_of(side: Side) -> &'static str {
    match side {
        Side::Train => "train",
        Side::Validation => "validation",
    }
}
