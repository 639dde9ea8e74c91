//! The section `tokenizer`: an existing tokenizer, or how to train one.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a text is cut into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerAlgorithm {
    /// Byte-level BPE, as GPT-2 and RoBERTa have it: nothing is unknown.
    #[default]
    ByteLevelBpe,
    /// WordPiece, as BERT has it: rare characters are unknown, white space is not kept.
    #[serde(rename = "wordpiece")]
    WordPiece,
    /// A unigram language model of pieces, as SentencePiece has it; rare characters are spelled in bytes.
    Unigram,
}

/// An existing tokenizer, or how to train one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenizerConfig {
    /// An existing `tokenizer.json`, or a folder that holds one; absent means "train one".
    #[schemars(
        length(min = 1),
        example = "tokenizers/english",
        extend("x-path" = true, "x-foreign-names" = ["tokenizer_name", "tokenizer_path"]),
    )]
    pub path: Option<PathBuf>,
    /// Algorithm of the tokenizer to train.
    pub algorithm: TokenizerAlgorithm,
    /// Entries of the vocabulary to train, special tokens included.
    #[schemars(range(max = 1 << 24))]
    pub vocab_size: usize,
    /// Round `vocab_size` up to a multiple of this, and fill up with unused entries what the corpus does not
    /// give; 64 suits matrix units.
    #[schemars(range(min = 1, max = 1 << 16))]
    pub pad_vocab_to_multiple_of: Option<usize>,
    /// Pairs (BPE, WordPiece) or pieces (unigram) seen fewer times than this get no entry.
    #[schemars(range(min = 1))]
    pub min_frequency: u64,
    /// Most characters that a WordPiece knows; words with others are unknown. Absent means that the vocabulary
    /// decides: as many as cover 99.95 % of the text, where there is room for them. Printable ASCII is always in.
    #[schemars(range(min = 1, max = 1 << 21))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_alphabet: Option<usize>,
    /// Turn all letters into small ones.
    pub lowercase: bool,
    /// Take accents off: `ä` becomes `a`.
    pub strip_accents: bool,
    /// Put a blank before a text that begins with none, so that its first word is spelled as words elsewhere
    /// are, and each word that a tagger is given; byte-level BPE only. Fine-tuning a tagger turns it on.
    pub add_prefix_space: bool,
    /// Bytes of text, sampled evenly over the corpus, that training reads.
    #[schemars(range(min = 1, max = 1_u64 << 40))]
    pub train_bytes: u64,
    /// Another tokenizer (a `tokenizer.json` or its folder) to compare with in the report.
    #[schemars(length(min = 1), example = "tokenizers/english", extend("x-path" = true))]
    pub compare_with: Option<PathBuf>,
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self {
            path: None,
            algorithm: TokenizerAlgorithm::default(),
            vocab_size: 30_000,
            pad_vocab_to_multiple_of: None,
            min_frequency: 2,
            limit_alphabet: None,
            lowercase: false,
            strip_accents: false,
            add_prefix_space: false,
            train_bytes: 256 << 20,
            compare_with: None,
        }
    }
}

impl TokenizerConfig {
    /// Returns the number of entries of the vocabulary to train, after rounding up.
    pub fn padded_vocab_size(&self) -> usize {
        let multiple = self.pad_vocab_to_multiple_of.unwrap_or(1).max(1);
        self.vocab_size.checked_next_multiple_of(multiple).unwrap_or(self.vocab_size)
    }
}
