//! Writes the shards of one side of the split, one file after the other; memory holds one shard.
//!
//! A shard's bytes depend on its documents and the tokenizer alone. Files appear whole or not at all.

use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::corpus::Side;
use crate::error::Problem;
use crate::fs;
use crate::shards::ShardEntry;
use crate::shards::SplitEntry;
use crate::shards::format;
use crate::shards::manifest;

/// Collects documents and writes a shard whenever one is full.
pub struct ShardWriter {
    folder: PathBuf,
    side: Side,
    tokenizer: String,
    vocab_size: usize,
    token_bytes: u64,
    shard_tokens: u64,
    offsets: Vec<u64>,
    /// Little-endian token ids of the shard that is being filled.
    tokens: Vec<u8>,
    entry: SplitEntry,
}

impl ShardWriter {
    /// Writes into `folder`; a shard has at most `shard_tokens` tokens, unless one document alone has more.
    pub fn new(folder: &Path, side: Side, tokenizer: &str, vocab_size: usize, shard_tokens: u64) -> Self {
        Self {
            folder: folder.to_path_buf(),
            side,
            tokenizer: tokenizer.to_string(),
            vocab_size,
            token_bytes: format::token_bytes_for(vocab_size),
            shard_tokens,
            offsets: vec![0],
            tokens: Vec::new(),
            entry: SplitEntry::default(),
        }
    }

    /// Adds a document of `text_bytes` bytes of text.
    pub fn push(&mut self, ids: &[u32], text_bytes: u64) -> Result<()> {
        if self.held_tokens() > 0 && self.held_tokens() + ids.len() as u64 > self.shard_tokens {
            self.write_shard()?;
        }
        for &id in ids {
            if id as usize >= self.vocab_size {
                return Err(Problem::new(format!("the tokenizer gave token id {id}, its vocabulary has {}", self.vocab_size)).into());
            }
            self.tokens.extend_from_slice(&id.to_le_bytes()[..self.token_bytes as usize]);
        }
        self.offsets.push(self.held_tokens());
        self.entry.documents += 1;
        self.entry.tokens += ids.len() as u64;
        self.entry.text_bytes += text_bytes;
        Ok(())
    }

    /// Writes what is left and says what was written.
    pub fn finish(mut self) -> Result<SplitEntry> {
        if self.offsets.len() > 1 {
            self.write_shard()?;
        }
        Ok(self.entry)
    }

    fn held_tokens(&self) -> u64 {
        self.tokens.len() as u64 / self.token_bytes
    }

    fn write_shard(&mut self) -> Result<()> {
        let offsets: Vec<u8> = self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let data_sha256 = fs::sha256_of(&[&offsets, &self.tokens]);
        let (documents, tokens) = (self.offsets.len() as u64 - 1, self.held_tokens());
        let header = format::encode_header(documents, tokens, self.token_bytes, &self.tokenizer, &data_sha256);
        let file = format!("{}-{:05}.safetensors", manifest::name_of(self.side), self.entry.shards.len());
        let parts: [&[u8]; 3] = [&header, &offsets, &self.tokens];
        fs::write_atomic(&self.folder.join(&file), |writer| {
            for part in parts {
                writer.write_all(part)?;
            }
            Ok(())
        })?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let sha256 = fs::sha256_of(&parts);
        self.entry.shards.push(ShardEntry { file, source: 0, documents, tokens, bytes, sha256 });
        self.offsets.truncate(1);
        self.tokens.clear();
        Ok(())
    }
}
