//! What a row may hold: its length, its special tokens, what may stand together in it.

use anyhow::Result;

use crate::config::PackingConfig;
use crate::config::PackingMode;
use crate::config::SentencePairs;
use crate::error::Problem;
use crate::tokenizer::Tokenizer;

/// Two special tokens and one of text.
const SHORTEST_ROW: usize = 3;

/// What stands around a piece, how long a row may be, and how rows are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Starts each segment.
    pub cls: u32,
    /// Ends each segment.
    pub sep: u32,
    /// Most tokens of a row, special tokens included (S).
    pub max_seq_length: usize,
    /// How rows are filled.
    pub packing: Packing,
    /// Places of the rows that long documents are cut into chunks for; `None` where whole documents are
    /// shuffled. It stays the same while `max_seq_length` changes during a run.
    pub chunk_row: Option<usize>,
}

/// How rows are filled; [`PackingMode`] says what each means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Pieces of documents, each a segment of its own.
    Segments,
    /// One segment over the whole row, across documents (Liu et al., "RoBERTa", 2019, section 4.2).
    FullSentences {
        /// Whether a separator token stands between two documents.
        separator: bool,
    },
    /// One piece of one document.
    Documents,
    /// Pieces placed best-fit-decreasing (Ding et al., "Fewer Truncations Improve Language Modeling", ICML
    /// 2024).
    BestFit {
        /// Documents that are placed together.
        window_documents: u64,
    },
    /// Pieces of documents, each a segment of its own and a pair of two texts: `pairs.rs` says how they are
    /// drawn.
    Pairs(SentencePairs),
}

impl Packing {
    /// As configured.
    pub fn new(config: &PackingConfig) -> Self {
        match config.mode {
            PackingMode::Segments => Self::Segments,
            PackingMode::FullSentences => Self::FullSentences { separator: config.separator },
            PackingMode::Documents => Self::Documents,
            PackingMode::BestFit => Self::BestFit { window_documents: config.window_documents.max(1) },
        }
    }
}

impl Frame {
    /// Segments in the frame of a tokenizer; a row must hold the two special tokens and at least one more.
    pub fn new(tokenizer: &Tokenizer, max_seq_length: usize) -> Result<Self> {
        if max_seq_length < SHORTEST_ROW {
            let message = format!("is {max_seq_length}, a row has at least {SHORTEST_ROW} tokens");
            return Err(Problem::usage(message).at("data.max_seq_length").into());
        }
        Ok(Self {
            cls: tokenizer.special().cls,
            sep: tokenizer.special().sep,
            max_seq_length,
            packing: Packing::Segments,
            chunk_row: None,
        })
    }

    /// The same frame where chunks of documents that fill a row are shuffled, each on its own.
    #[must_use]
    pub fn with_chunks(self) -> Self {
        Self { chunk_row: Some(self.max_seq_length), ..self }
    }

    /// The same frame with rows that are filled in another way.
    #[must_use]
    pub fn with_packing(self, packing: Packing) -> Self {
        Self { packing, ..self }
    }
}

/// A row of segments, each with its special tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Names the row in the whole run; the stream of its mask.
    pub sample_id: u64,
    /// Token ids, at most `max_seq_length`.
    pub ids: Vec<u32>,
    /// Where each segment ends.
    pub segment_ends: Vec<u32>,
}
