//! The section `data` of pretraining: the corpus, from its sources to rows. Its tables are in files of their
//! own.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batching::{PackingConfig, Shuffle};
use crate::cleaning::CleaningConfig;
use crate::contamination::ContaminationConfig;
use crate::deduplication::DeduplicationConfig;
use crate::filters::FiltersConfig;
use crate::sources::SourceConfig;

/// The corpus, its split, and the folder of its shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Sources of the text.
    pub sources: Vec<SourceConfig>,
    /// Cleaning of each document.
    pub cleaning: CleaningConfig,
    /// Filters of documents and lines.
    pub filters: FiltersConfig,
    /// Removal of repeated documents.
    pub deduplication: DeduplicationConfig,
    /// Removal of documents that contain text of evaluation files.
    pub contamination: ContaminationConfig,
    /// Share of documents kept for validation; chosen by a hash of the text, so that added sources never
    /// move one.
    pub validation_fraction: f64,
    /// Folder of the tokenizer and the shards; `<output_dir>/data` when absent.
    pub prepared_dir: Option<PathBuf>,
    /// Longest sequence in tokens, special tokens included.
    pub max_seq_length: usize,
    /// How documents become rows.
    pub packing: PackingConfig,
    /// Threads that mask and lay out batches ahead of training, at least 1; their number changes no batch.
    pub loader_workers: usize,
    /// The unit of shuffling. When absent, a new run shuffles rows and a resumed run keeps what it began
    /// with.
    pub shuffle: Option<Shuffle>,
    /// Shuffles within this number of shards at a time, at least 1; within all when absent. Shards in a
    /// bucket are read a window ahead then, and three windows take room on this disk.
    pub shuffle_window_shards: Option<usize>,
    /// Most tokens of one shard file.
    pub shard_tokens: u64,
    /// Documents longer than this many bytes of text are cut into pieces of this size at white space.
    pub max_document_bytes: u64,
    /// Lines longer than this many bytes are left out, counted and reported.
    pub max_line_bytes: u64,
    /// Keep the documents that are read again if the shards are removed (`<prepared_dir>/documents`).
    pub keep_documents: bool,
    /// Also write the cleaned text of each source, without repeated documents, as
    /// `<prepared_dir>/text/*.jsonl.zst`: for other programs, and as the source of models with another
    /// tokenizer.
    pub save_text: bool,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            cleaning: CleaningConfig::default(),
            filters: FiltersConfig::default(),
            deduplication: DeduplicationConfig::default(),
            contamination: ContaminationConfig::default(),
            validation_fraction: 0.01,
            prepared_dir: None,
            max_seq_length: 128,
            packing: PackingConfig::default(),
            loader_workers: 1,
            shuffle: None,
            shuffle_window_shards: None,
            shard_tokens: 16_777_216,
            max_document_bytes: 1 << 20,
            max_line_bytes: 16 << 20,
            keep_documents: false,
            save_text: false,
        }
    }
}
