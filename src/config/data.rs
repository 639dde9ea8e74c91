//! Where text comes from and how it becomes tokens and masked rows.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// How a source's files are to be read; compression (.gz, .zst) is told by the last extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// By the extension: `.jsonl`/`.ndjson`/`.json` is `jsonl`, anything else `text`.
    Auto,
    /// Plain text.
    Text,
    /// One JSON object a line.
    Jsonl,
}

/// What one document of a plain-text file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentUnit {
    /// The whole file.
    File,
    /// A run of lines between blank lines.
    Paragraph,
    /// A line.
    Line,
}

/// Files that are read in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Files, or glob patterns such as `corpus/*.jsonl.zst`; relative to the current folder.
    pub files: Vec<String>,
    /// How to read them.
    #[serde(default = "auto")]
    pub format: Format,
    /// What one document is (plain text only).
    #[serde(default = "file")]
    pub document: DocumentUnit,
    /// The JSON field that holds the text (`jsonl` only).
    #[serde(default = "text")]
    pub field: String,
}

fn auto() -> Format {
    Format::Auto
}
fn file() -> DocumentUnit {
    DocumentUnit::File
}
fn text() -> String {
    "text".to_string()
}

/// The corpus, its split, and where its shards lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Where the text comes from.
    pub sources: Vec<SourceConfig>,
    /// Share of documents kept for validation; chosen by a hash of the text, so that added sources never move one.
    pub validation_fraction: f64,
    /// Folder of the tokenizer and the shards; `<output_dir>/data` when absent.
    pub prepared_dir: Option<PathBuf>,
    /// Longest sequence in tokens, special tokens included.
    pub max_seq_length: usize,
    /// Most tokens of one shard file.
    pub shard_tokens: u64,
    /// Documents longer than this many bytes of text are cut into pieces of this size at white space.
    pub max_document_bytes: u64,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            validation_fraction: 0.01,
            prepared_dir: None,
            max_seq_length: 128,
            shard_tokens: 16_777_216,
            max_document_bytes: 1 << 20,
        }
    }
}

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

/// Masking of tokens for the masked language model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlmConfig {
    /// Share of the non-special tokens to predict.
    pub mlm_probability: f64,
    /// Share of those replaced by the mask token.
    pub mask_replace_prob: f64,
    /// Share of those replaced by a random token; the rest stays as it is.
    pub random_replace_prob: f64,
}

impl Default for MlmConfig {
    fn default() -> Self {
        Self { mlm_probability: 0.15, mask_replace_prob: 0.8, random_replace_prob: 0.1 }
    }
}
