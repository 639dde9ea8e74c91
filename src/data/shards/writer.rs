//! Writes the shards of one side of the split, one file after the other, with one shard in memory.
//!
//! The bytes of a shard depend only on its documents and on the tokenizer. A shard has documents of a single
//! source. Files appear as a whole or not at all.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::corpus::Side;
use crate::shards::{ShardEntry, SplitEntry, format, manifest};
use base::error::Problem;
use base::fs;

/// Collects documents, and writes a shard whenever one is full.
pub struct ShardWriter {
    folder: PathBuf,
    side: Side,
    tokenizer: String,
    vocab_size: usize,
    token_bytes: u64,
    shard_tokens: u64,
    /// Documents that are collected for the next shard.
    open: PendingShard,
    /// Description of the shards that are written.
    written: SplitEntry,
}

#[derive(Default)]
struct PendingShard {
    source: usize,
    /// End of each document, in tokens.
    ends: Vec<u64>,
    /// Little-endian token ids.
    tokens: Vec<u8>,
    text_bytes: u64,
}

impl ShardWriter {
    /// A writer into `folder`. A shard has at most `shard_tokens` tokens, unless a single document has more.
    pub fn new(folder: &Path, side: Side, tokenizer: &str, vocab_size: usize, shard_tokens: u64) -> Self {
        Self {
            folder: folder.to_path_buf(),
            side,
            tokenizer: tokenizer.to_string(),
            vocab_size,
            token_bytes: format::token_bytes_for(vocab_size),
            shard_tokens,
            open: PendingShard::default(),
            written: SplitEntry::default(),
        }
    }

    /// Continues after the shards that `written` describes.
    #[must_use]
    pub fn behind(mut self, written: SplitEntry) -> Self {
        self.written = written;
        self
    }

    /// Description of the shards that are written, without the documents that are still being collected.
    pub fn written(&self) -> &SplitEntry {
        &self.written
    }

    /// Returns true if `push` of a document of this source and length would first write a shard without it.
    pub fn is_full_for(&self, source: usize, tokens: usize) -> bool {
        let collected = self.collected_tokens();
        collected > 0 && (source != self.open.source || collected + tokens as u64 > self.shard_tokens)
    }

    /// Adds a document of `text_bytes` bytes of text. Documents of a source must follow each other.
    pub fn push(&mut self, source: usize, ids: &[u32], text_bytes: u64) -> Result<()> {
        if self.is_full_for(source, ids.len()) {
            self.write_shard()?;
        }
        for &id in ids {
            if id as usize >= self.vocab_size {
                return Err(Problem::new(format!(
                    "the tokenizer gave token id {id}, its vocabulary has {}",
                    self.vocab_size
                ))
                .into());
            }
            self.open.tokens.extend_from_slice(&id.to_le_bytes()[..self.token_bytes as usize]);
        }
        let end = self.collected_tokens();
        self.open.source = source;
        self.open.ends.push(end);
        self.open.text_bytes += text_bytes;
        Ok(())
    }

    /// Writes the last shard, and returns the description of all shards.
    pub fn finish(mut self) -> Result<SplitEntry> {
        self.write_shard()?;
        Ok(self.written)
    }

    fn collected_tokens(&self) -> u64 {
        self.open.tokens.len() as u64 / self.token_bytes
    }

    /// Writes the shard that is being collected, unless it has no document.
    pub fn write_shard(&mut self) -> Result<()> {
        if self.open.ends.is_empty() {
            return Ok(());
        }
        let documents = self.open.ends.len() as u64;
        let tokens = self.collected_tokens();
        let offsets: Vec<u8> =
            std::iter::once(&0).chain(&self.open.ends).flat_map(|offset| offset.to_le_bytes()).collect();
        let data_sha256 = fs::sha256_of(&[&offsets, &self.open.tokens]);
        let header =
            format::encode_header(documents, tokens, self.token_bytes, &self.tokenizer, &data_sha256);
        let file = format!("{}-{:05}.safetensors", manifest::name_of(self.side), self.written.shards.len());
        let parts: [&[u8]; 3] = [&header, &offsets, &self.open.tokens];
        fs::write_atomic(&self.folder.join(&file), |writer| {
            for part in parts {
                writer.write_all(part)?;
            }
            Ok(())
        })?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let sha256 = fs::sha256_of(&parts);
        self.written.shards.push(ShardEntry {
            file,
            source: self.open.source,
            documents,
            tokens,
            bytes,
            sha256,
        });
        self.written.documents += documents;
        self.written.tokens += tokens;
        self.written.text_bytes += self.open.text_bytes;
        // The buffer keeps its capacity: the next shard will be as large.
        self.open.tokens.clear();
        self.open.ends.clear();
        self.open.text_bytes = 0;
        Ok(())
    }
}
