//! Collects the documents of one part, compressed in memory, and writes them at once.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use zstd::stream::write::Encoder;

use crate::corpus::store::{PartEntry, PartPaths, StoredDocument};
use base::fs;

/// Fast compression, since the parts are read once or twice and then removed.
const ZSTD_LEVEL: i32 = 1;

/// Documents of a part that is not written yet.
pub(in crate::corpus) struct PartWriter {
    encoder: Encoder<'static, Vec<u8>>,
    buffer: Vec<u8>,
    documents: u64,
    text_bytes: u64,
}

impl PartWriter {
    pub(in crate::corpus) fn new() -> Result<Self> {
        let mut encoder =
            Encoder::new(Vec::new(), ZSTD_LEVEL).context("cannot start to compress documents")?;
        // With a checksum, damage to a part is found when it is read, and does not reach the shards.
        encoder.include_checksum(true).context("cannot start to compress documents")?;
        Ok(Self { encoder, buffer: Vec::new(), documents: 0, text_bytes: 0 })
    }

    pub(in crate::corpus) fn push(&mut self, document: &StoredDocument) -> Result<()> {
        self.buffer.clear();
        document.encode(&mut self.buffer);
        self.encoder.write_all(&self.buffer).context("cannot compress a document")?;
        self.documents += 1;
        self.text_bytes += document.text.len() as u64;
        Ok(())
    }

    /// Writes the documents and, after them, the entry that certifies them; the sketches must be written
    /// before.
    pub(in crate::corpus) fn finish<T: Serialize>(
        self,
        paths: &PartPaths,
        items: u64,
        files: Vec<PathBuf>,
        tally: T,
    ) -> Result<()> {
        let bytes = self.encoder.finish().context("cannot compress a document")?;
        fs::write_bytes(&paths.documents, &bytes)?;
        let file_bytes = bytes.len() as u64;
        let entry = PartEntry {
            items,
            documents: self.documents,
            text_bytes: self.text_bytes,
            file_bytes,
            files,
            tally,
        };
        fs::write_bytes(&paths.entry, serde_json::to_string(&entry)?.as_bytes())
    }
}
