//! The section `data` of pretraining: the corpus, from its sources to rows. Its tables are in files of their
//! own.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batching::{LONGEST_SEQUENCE, PackingConfig, SHORTEST_SEQUENCE, Shuffle};
use crate::cleaning::CleaningConfig;
use crate::contamination::ContaminationConfig;
use crate::deduplication::DeduplicationConfig;
use crate::filters::FiltersConfig;
use crate::on_resume::OnResume;
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
    #[schemars(
        range(max = 0.5),
        example = 0.01,
        extend(
            "exclusiveMinimum" = 0,
            "x-foreign-names" = ["validation_split_percentage"],
            "x-foreign-hint" = ": 5 percent are `0.05`",
        ),
    )]
    pub validation_fraction: f64,
    /// Folder of the tokenizer and the shards; `<output_dir>/data` when absent.
    #[schemars(extend("x-on-resume" = OnResume::Free, "x-path" = true))]
    pub prepared_dir: Option<PathBuf>,
    /// Longest sequence in tokens, special tokens included.
    #[schemars(
        range(min = SHORTEST_SEQUENCE, max = LONGEST_SEQUENCE),
        extend(
            "x-decides-losses" = true,
            "x-other-names" = ["max_length"],
            "x-foreign-names" = ["block_size", "max_sequence_length", "seq_length", "seq_len"],
        ),
    )]
    pub max_seq_length: usize,
    /// How documents become rows.
    pub packing: PackingConfig,
    /// Threads that mask and lay out batches ahead of training, at least 1; their number changes no batch.
    #[schemars(
        range(min = 1, max = 256),
        extend(
            "x-on-resume" = OnResume::Free,
            "x-foreign-names" = ["dataloader_num_workers", "num_workers"],
            "x-foreign-hint" = "; it changes no batch",
        ),
    )]
    pub loader_workers: usize,
    /// The unit of shuffling. When absent, a new run shuffles rows and a resumed run keeps what it began
    /// with.
    #[schemars(extend("x-decides-losses" = true))]
    pub shuffle: Option<Shuffle>,
    /// Shuffles within this number of shards at a time, at least 1; within all when absent. Shards in a
    /// bucket are read a window ahead then, and three windows take room on this disk.
    #[schemars(range(min = 1, max = 1 << 20), extend("x-decides-losses" = true))]
    pub shuffle_window_shards: Option<usize>,
    /// Most tokens of one shard file.
    #[schemars(range(min = 1024, max = 1_u64 << 32))]
    pub shard_tokens: u64,
    /// Documents longer than this many bytes of text are cut into pieces of this size at white space.
    #[schemars(range(min = 1024, max = 1 << 30))]
    pub max_document_bytes: u64,
    /// Lines longer than this many bytes are left out, counted and reported.
    #[schemars(range(min = 1024, max = 1 << 30))]
    pub max_line_bytes: u64,
    /// Keep the documents that are read again if the shards are removed (`<prepared_dir>/documents`).
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub keep_documents: bool,
    /// Also write the cleaned text of each source, without repeated documents, as
    /// `<prepared_dir>/text/*.jsonl.zst`: for other programs, and as the source of models with another
    /// tokenizer.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
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
