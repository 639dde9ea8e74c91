//! The limits and the form of a row: its length, its special tokens, and the way it is filled.

use anyhow::Result;

use crate::tokenizer::Tokenizer;
use base::error::Problem;
use config::{PackingConfig, PackingMode, SentencePairs};

/// Two special tokens and one token of text.
const SHORTEST_ROW: usize = 3;

/// Special tokens around a piece, length of a row, and way of filling rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Token that starts each segment.
    pub cls: u32,
    /// Token that ends each segment.
    pub sep: u32,
    /// Most tokens of a row, including special tokens (S).
    pub max_seq_length: usize,
    /// The way of filling rows.
    pub packing: Packing,
    /// Length of the rows for which long documents are divided into chunks; `None` if whole documents are
    /// shuffled. It stays the same when `max_seq_length` changes during a run.
    pub chunk_row: Option<usize>,
}

/// The way of filling rows; see [`PackingMode`] for the meaning of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Pieces of documents, each of which is a segment.
    Segments,
    /// One segment over the whole row, across documents (Liu et al., "RoBERTa", 2019, section 4.2).
    FullSentences {
        /// True if a separator token is put between two documents.
        separator: bool,
    },
    /// One piece of one document.
    Documents,
    /// Pieces placed best-fit-decreasing (Ding et al., "Fewer Truncations Improve Language Modeling", ICML
    /// 2024).
    BestFit {
        /// Number of documents that are placed together.
        window_documents: u64,
    },
    /// Pieces of documents, each of which is a segment and a pair of two texts, drawn as described in
    /// `pairs.rs`.
    Pairs(SentencePairs),
}

impl Packing {
    /// The packing of a configuration.
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
    /// A frame with the special tokens of a tokenizer, filled with segments; a row must have space for two
    /// special tokens and at least one more.
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

    /// The same frame, but chunks of documents that fill a row are shuffled separately.
    #[must_use]
    pub fn with_chunks(self) -> Self {
        Self { chunk_row: Some(self.max_seq_length), ..self }
    }

    /// The same frame with another way of filling rows.
    #[must_use]
    pub fn with_packing(self, packing: Packing) -> Self {
        Self { packing, ..self }
    }
}

/// A row of segments, each with its special tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Identifies the row in the whole run and selects the random stream of its mask.
    pub sample_id: u64,
    /// Token ids, at most `max_seq_length`.
    pub ids: Vec<u32>,
    /// The end of each segment.
    pub segment_ends: Vec<u32>,
}
