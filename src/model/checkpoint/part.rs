//! The parts of a checkpoint before it is written.

use std::io::Write;

use anyhow::Result;
use candle_core::Tensor;

use crate::checkpoint::tensor_file;
use crate::checkpoint::tensor_file::write_tensors;
use base::sealed::Content;

/// Approximate size of the blocks in which file systems allocate space: each file wastes at most one block.
const BLOCK_BYTES: u64 = 4096;

/// The content of one file of a checkpoint.
#[derive(Debug, Clone)]
pub enum Part {
    /// A safetensors file; the names must be distinct.
    Tensors(Vec<(String, Tensor)>),
    /// A JSON file, written with indentation.
    Json(serde_json::Value),
    /// A file with just these bytes.
    Bytes(Vec<u8>),
}

/// Everything that is saved at one step.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Number of updates done.
    pub step: u64,
    /// Parts by their relative paths, such as `model.safetensors` or `trainer/state.json`.
    pub parts: Vec<(String, Part)>,
}

impl Snapshot {
    /// Upper bound on the bytes that the folder of this snapshot takes on disk.
    pub fn size_bytes(&self) -> u64 {
        let files: u64 = self.parts.iter().map(|(_, part)| part.size_bytes() + BLOCK_BYTES).sum();
        // Space for the manifest and the folders themselves.
        files + 8 * BLOCK_BYTES
    }
}

impl Part {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Tensors(tensors) => tensor_file::size_bytes(tensors),
            // A megabyte of slack is less work than serialising twice, and negligible compared with the
            // tensors.
            Self::Json(_) => 1 << 20,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

impl Content for Part {
    fn write_to(&self, writer: &mut impl Write) -> Result<()> {
        match self {
            Self::Tensors(tensors) => write_tensors(writer, tensors),
            // Serialised to memory first, because serde_json would hide the error of a full disk.
            Self::Json(value) => Ok(writer.write_all(&serde_json::to_vec_pretty(value)?)?),
            Self::Bytes(bytes) => Ok(writer.write_all(bytes)?),
        }
    }
}
