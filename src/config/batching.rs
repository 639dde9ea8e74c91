//! Packing of documents into rows, and the ramp of the batch size over the steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Fewest tokens of a sequence: two special tokens and one of text.
pub(crate) const SHORTEST_SEQUENCE: usize = 3;
/// Most tokens of a sequence.
pub(crate) const LONGEST_SEQUENCE: usize = 1 << 20;

/// The pieces of documents that may share a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PackingMode {
    /// Pieces of documents end to end; attention stays inside a piece. A document that does not fit continues
    /// in the next row.
    Segments,
    /// Text of one document after the other as one sequence that attention sees whole (RoBERTa's
    /// FULL-SENTENCES).
    FullSentences,
    /// One document, or one piece of a long one; short rows stay short.
    Documents,
    /// Whole documents and the ends of long ones, placed so that rows are full and no document is cut that
    /// fits a row.
    BestFit,
}

/// The unit that is shuffled anew each epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shuffle {
    /// Pieces of documents that fill a row, over all documents; what is left of each document comes in a
    /// shuffled order of documents. Every other row of a long document consists of short segments.
    Rows,
    /// Documents: the rows of a long one follow each other.
    Documents,
}

/// Packing of documents into rows of at most `max_seq_length` tokens. Nothing is padded and no token is left
/// out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PackingConfig {
    /// The pieces of documents that may share a row.
    pub mode: PackingMode,
    /// Put a separator token between two documents of a row (`full_sentences` only).
    #[schemars(extend("x-only-with" = ["data.packing.mode", "full_sentences"]))]
    pub separator: bool,
    /// Documents that are placed together (`best_fit` only): more fill the rows better, a resume plans one
    /// window again.
    #[schemars(range(min = 1, max = 1 << 20), extend("x-only-with" = ["data.packing.mode", "best_fit"]))]
    pub window_documents: u64,
}

impl Default for PackingConfig {
    fn default() -> Self {
        Self { mode: PackingMode::Segments, separator: true, window_documents: 1024 }
    }
}

/// Smaller batches at the beginning: the number of micro-batches of an update grows along a straight line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSizeRamp {
    /// Micro-batches of the first update.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub start_micro_batches: usize,
    /// Updates until the full number is reached; 0 means no ramp.
    pub steps: u64,
}

impl Default for BatchSizeRamp {
    fn default() -> Self {
        Self { start_micro_batches: 1, steps: 0 }
    }
}
