//! Disk space that preparing a corpus takes, estimated before it starts.

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::corpus::{Corpus, deduplication_bytes_per_document};
use crate::shards::token_bytes_for;
use base::error::{Class, Problem};
use base::fs;
use base::fs::Kind;
use base::quantity::format_bytes;
use config::PretrainConfig;

/// Length of a typical web document; the number of documents is not known before they are read.
const DOCUMENT_BYTES: u64 = 1000;

/// Report, settings and manifests, each with a last disk block that is half empty.
const SMALL_FILES_BYTES: u64 = 128 << 10;

/// Bytes of a vocabulary entry in all files of a tokenizer together.
const ENTRY_BYTES: u64 = 100;

/// Disk space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Text of the corpus, uncompressed, before anything is left out.
    pub text_bytes: u64,
    /// Peak space in the prepared folder: kept documents, scratch files of deduplication, and shards.
    pub needed_bytes: u64,
    /// Space used at the end: shards, the kept documents with `data.keep_documents`, and their text with
    /// `data.save_text`.
    pub final_bytes: u64,
    /// Free space now.
    pub free_bytes: u64,
}

impl Space {
    /// Estimates the space to prepare the corpus of a configuration.
    pub fn predict(config: &PretrainConfig) -> Result<Self> {
        Self::predict_for(config, &Corpus::open(&config.data)?, &config.prepared_dir())
    }

    pub(super) fn predict_for(config: &PretrainConfig, corpus: &Corpus, folder: &Path) -> Result<Self> {
        let text_bytes = corpus.files().iter().map(|file| expanded_bytes(file.kind(), file.size_bytes)).sum();
        let free_bytes = fs::free_bytes(folder)?;
        Ok(Self::estimate(config, text_bytes, free_bytes))
    }

    fn estimate(config: &PretrainConfig, text_bytes: u64, free_bytes: u64) -> Self {
        // Measured on Finnish and English web text: zstd at its fast level leaves 45 %; a token covers 4 to 5
        // bytes with a vocabulary of some ten thousand entries, 3 with a smaller one.
        let documents = text_bytes * 45 / 100;
        let vocab_size = if config.tokenizer.path.is_some() { 1 << 17 } else { config.tokenizer.vocab_size };
        let shards = text_bytes * token_bytes_for(vocab_size) / 3;
        let sketches =
            text_bytes / DOCUMENT_BYTES * deduplication_bytes_per_document(&config.data.deduplication);
        let small_files = SMALL_FILES_BYTES + vocab_size as u64 * ENTRY_BYTES;
        let text = if config.data.save_text { documents } else { 0 };
        let kept = if config.data.keep_documents { documents } else { 0 };
        let final_bytes = shards + small_files + text + kept;
        let needed_bytes = documents + sketches + shards + small_files + text;
        Self { text_bytes, needed_bytes, final_bytes, free_bytes }
    }

    /// True if the estimate is more than the free space.
    pub fn is_tight(&self) -> bool {
        self.needed_bytes > self.free_bytes
    }

    /// Fails if even half of the estimate is more than the free space.
    pub fn require(&self, folder: &Path) -> Result<()> {
        if self.needed_bytes / 2 <= self.free_bytes {
            return Ok(());
        }
        let message = format!(
            "the disk is too small: about {} are needed for {} of text, {} are free",
            format_bytes(self.needed_bytes),
            format_bytes(self.text_bytes),
            format_bytes(self.free_bytes)
        );
        Err(Problem::new(message)
            .at(folder.display())
            .class(Class::Disk)
            .hint("set `data.prepared_dir` to a folder on a larger disk")
            .into())
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [text, needed, last, free] =
            [self.text_bytes, self.needed_bytes, self.final_bytes, self.free_bytes].map(format_bytes);
        write!(f, "about {needed} while preparing {text} of text, {last} after it; {free} are free")
    }
}

/// Estimates the decompressed length of a text file by typical compression ratios.
fn expanded_bytes(kind: Kind, size_bytes: u64) -> u64 {
    match kind {
        Kind::Parquet => size_bytes * 2,
        Kind::Compressed(_) => size_bytes * 7 / 2,
        _ => size_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(json: &str, text_bytes: u64, free_bytes: u64) -> Space {
        let json = format!(r#"{{"data": {{"sources": [], {json}}}, "model": {{"roberta": {{}}}}}}"#);
        Space::estimate(&serde_json::from_str(&json).unwrap(), text_bytes, free_bytes)
    }

    #[test]
    fn a_hopeless_estimate_is_refused_and_a_doubtful_one_is_not() {
        let tight = space(r#""keep_documents": false"#, 1 << 30, 400 << 20);
        assert!(tight.require(Path::new("data")).is_err_and(|e| base::error::class_of(&e) == Class::Disk));
        let doubtful = space(r#""keep_documents": false"#, 1 << 30, 700 << 20);
        assert!(doubtful.is_tight() && doubtful.require(Path::new("data")).is_ok());
        assert!(!space(r#""keep_documents": false"#, 1 << 30, 2 << 30).is_tight());
        assert!(space(r#""keep_documents": true"#, 1 << 30, 0).final_bytes > tight.final_bytes);
        let text = space(r#""save_text": true"#, 1 << 30, 0);
        assert!(text.final_bytes > tight.final_bytes && text.needed_bytes > tight.needed_bytes);
        assert!(
            space(r#""deduplication": {"near_threshold": 0.8}"#, 1 << 30, 0).needed_bytes
                > tight.needed_bytes
        );
    }

    #[test]
    fn a_small_corpus_counts_with_the_small_files_next_to_its_shards() {
        // Measured: 77 KiB of text and a vocabulary of 400 leave 132 KiB on the disk.
        let small = space(r#""keep_documents": false"#, 77 << 10, 1 << 30);
        assert!(small.final_bytes > 132 << 10, "{}", small.final_bytes);
    }

    #[test]
    fn compressed_text_counts_with_its_decompressed_length() {
        let zstd = Kind::Compressed(fs::Compression::Zstd);
        assert_eq!(
            [Kind::Text, zstd, Kind::Parquet].map(|kind| expanded_bytes(kind, 1000)),
            [1000, 3500, 2000]
        );
    }
}
