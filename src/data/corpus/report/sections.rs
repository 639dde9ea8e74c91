//! The report as a struct: `report.json` has the same fields.
//!
//! Bytes in `read` are those of the decompressed files; all other bytes are of the text that was judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::corpus::report::{Amount, Samples, SourceTally, Tally};

const VERSION: u32 = 1;

/// Counts of the corpus at every stage from raw files to shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Version of this layout: 1.
    pub version: u32,
    /// Counts of each source, in the order of the configuration.
    pub sources: Vec<SourceTally>,
    /// Documents read, of all sources.
    pub read: Amount,
    /// Documents left out, by reason.
    pub dropped: BTreeMap<String, Amount>,
    /// Documents kept in the end.
    pub kept: Amount,
    /// Kept documents on each side of the split.
    pub split: SplitSummary,
    /// How well the tokenizer fits; absent when that was not measured.
    pub tokenizer: Option<Fertility>,
    /// Sources with much text that the tokenizer does not know, each with the unknown share of its bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_text: Vec<(String, f64)>,
    /// Sizes of the shards; absent if no shards were made.
    pub shards: Option<ShardsSummary>,
    /// Examples of documents left out, by reason, at most 20 each, spread over the corpus.
    pub samples: Samples,
}

/// The two sides of the split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitSummary {
    /// For training.
    pub train: Amount,
    /// For evaluation.
    pub validation: Amount,
}

/// Table of figures about the tokenizer, with one row per source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fertility {
    /// Names of the figures, such as `tokens_per_word`, `bytes_per_token`, `unknown_rate`.
    pub columns: Vec<String>,
    /// Name of each row and its figures, in the order of the columns.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// Sizes of the shards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardsSummary {
    /// Tokens of each source, in the order of the configuration.
    pub source_tokens: Vec<u64>,
    /// Tokens of all sources.
    pub tokens: u64,
    /// UTF-8 bytes of the text that was tokenized.
    pub text_bytes: u64,
    /// Bytes of the shard files.
    pub disk_bytes: u64,
}

impl ShardsSummary {
    /// Returns the bytes on disk per byte of text; 0 if there is no text.
    pub fn ratio(&self) -> f64 {
        share(self.disk_bytes, self.text_bytes)
    }
}

impl Report {
    /// Creates a report from counts; tokenizer and shards are added later, when they are made.
    pub fn new(tally: Tally, split: SplitSummary) -> Self {
        let sources = tally.sources;
        let mut dropped: BTreeMap<String, Amount> = BTreeMap::new();
        for (reason, amount) in sources.iter().flat_map(|source| &source.dropped) {
            dropped.entry(reason.clone()).or_default().merge(*amount);
        }
        Self {
            version: VERSION,
            read: Amount::sum(sources.iter().map(|source| source.read)),
            dropped,
            kept: Amount::sum(sources.iter().map(|source| source.kept)),
            sources,
            split,
            tokenizer: None,
            unknown_text: Vec::new(),
            shards: None,
            samples: tally.samples,
        }
    }

    /// Returns the reasons, the most frequent one first.
    pub(super) fn reasons(&self) -> Vec<(&str, Amount)> {
        let mut reasons: Vec<(&str, Amount)> =
            self.dropped.iter().map(|(reason, amount)| (reason.as_str(), *amount)).collect();
        reasons.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.documents));
        reasons
    }
}

/// Returns `part / whole`; 0 if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Formats a figure with three decimals, or with five if it is small.
pub(super) fn figure(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { format!("{value:.5}") } else { format!("{value:.3}") }
}
