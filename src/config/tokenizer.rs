//! The tokenizer: an existing one, or how to train one.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// An existing tokenizer, or how to train one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenizerConfig {
    /// An existing `tokenizer.json`, or a folder that holds one; absent means "train a byte-level BPE".
    pub path: Option<PathBuf>,
    /// Entries of the vocabulary to train, special tokens included.
    pub vocab_size: usize,
    /// Pairs seen fewer times than this are not merged.
    pub min_frequency: u64,
    /// Bytes of text, sampled evenly over the corpus, that training reads.
    pub train_bytes: u64,
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self { path: None, vocab_size: 30_000, min_frequency: 2, train_bytes: 256 << 20 }
    }
}
