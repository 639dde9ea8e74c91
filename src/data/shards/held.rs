//! One shard on this disk or in memory, open for reading.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shards::format::Layout;
use crate::shards::{ShardEntry, format};
use base::error::Problem;
use base::fs;
use base::fs::File;

/// Storage of the bytes of a shard.
#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

/// A shard that is open for reading.
#[derive(Debug)]
pub(super) struct OpenShard {
    bytes: Bytes,
    path: PathBuf,
    pub(super) layout: Layout,
}

impl OpenShard {
    pub(super) fn in_memory(documents: &[Vec<u32>]) -> Self {
        let tokens: u64 = documents.iter().map(|d| d.len() as u64).sum();
        let ends = documents.iter().scan(0u64, |end, document| {
            *end += document.len() as u64;
            Some(*end)
        });
        let mut bytes: Vec<u8> = std::iter::once(0).chain(ends).flat_map(u64::to_le_bytes).collect();
        bytes.extend(documents.iter().flatten().flat_map(|id| id.to_le_bytes()));
        let layout = Layout { documents: documents.len() as u64, tokens, token_bytes: 4, data_start: 0 };
        Self { bytes: Bytes::Memory(bytes), path: PathBuf::from("memory"), layout }
    }

    /// Opens a file and compares its length, header and hash with its entry in the manifest.
    pub(super) fn open(path: &Path, entry: &ShardEntry) -> Result<Self> {
        let mut file = fs::open(path)?;
        let file_bytes = fs::len_bytes(path)?;
        if file_bytes != entry.bytes {
            return Err(broken(
                path,
                format!(
                    "has {file_bytes} bytes, the manifest says {}: it is cut or was replaced",
                    entry.bytes
                ),
            )
            .into());
        }
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).with_context(|| format!("cannot read `{}`", path.display()))?;
        let header_bytes = le_u64(&length);
        if header_bytes > format::HEADER_BYTES_MAX || header_bytes + 8 > file_bytes {
            return Err(broken(
                path,
                format!("has a header of {header_bytes} bytes: it is damaged or not a shard"),
            )
            .into());
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact_at(&mut header, 8).with_context(|| format!("cannot read `{}`", path.display()))?;
        let layout = format::decode_header(&header, file_bytes).map_err(|message| broken(path, message))?;
        let sha256 =
            fs::sha256_of_reader(&mut file).with_context(|| format!("cannot read `{}`", path.display()))?;
        if sha256 != entry.sha256 || (layout.documents, layout.tokens) != (entry.documents, entry.tokens) {
            return Err(broken(
                path,
                "does not match its hash in the manifest: it is damaged or was replaced".to_string(),
            )
            .into());
        }
        Ok(Self { bytes: Bytes::File(file), path: path.to_path_buf(), layout })
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        match &self.bytes {
            Bytes::File(file) => file.read_exact_at(bytes, offset),
            Bytes::Memory(all) => all.as_slice().get(offset as usize..).unwrap_or_default().read_exact(bytes),
        }
        .with_context(|| format!("cannot read `{}` at byte {offset}", self.path.display()))
    }

    pub(super) fn damaged(&self, message: String) -> anyhow::Error {
        Problem::new(message).at(self.path.display()).hint("it is damaged: prepare the text again").into()
    }
}

fn broken(path: &Path, message: String) -> Problem {
    Problem::new(message).at(path.display())
}

pub(super) fn le_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
