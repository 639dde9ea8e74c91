//! The report as a whole: `report.json` is this struct, field by field.
//!
//! Bytes of `read` are of the decompressed files, all others of the text that was judged.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;

use crate::corpus::report::Amount;
use crate::corpus::report::Samples;
use crate::corpus::report::SourceTally;
use crate::corpus::report::Tally;
use crate::corpus::report::html;
use crate::corpus::report::table;

const VERSION: u32 = 1;

/// What became of the corpus, from raw files to shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Version of this layout: 1.
    pub version: u32,
    /// In the order of the configuration.
    pub sources: Vec<SourceTally>,
    /// What came in, in all.
    pub read: Amount,
    /// What was left out, by reason.
    pub dropped: BTreeMap<String, Amount>,
    /// What is left in the end.
    pub kept: Amount,
    /// How what is left was split.
    pub split: SplitSummary,
    /// How well the tokenizer fits; absent when that was not measured.
    pub tokenizer: Option<Fertility>,
    /// Sources of which the tokenizer does not know much, with that share of their bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_text: Vec<(String, f64)>,
    /// What lies on the disk; absent when no shards were made.
    pub shards: Option<ShardsSummary>,
    /// Examples of what was left out, by reason, at most 20 each, spread over the corpus.
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

/// A table of figures about the tokenizer: one row a source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fertility {
    /// What the figures are, such as `tokens_per_word`, `bytes_per_token`, `unknown_rate`.
    pub columns: Vec<String>,
    /// Name of each row and its figures, in the order of the columns.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// The shards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardsSummary {
    /// Tokens of each source, in the order of the configuration.
    pub source_tokens: Vec<u64>,
    /// Tokens in all.
    pub tokens: u64,
    /// UTF-8 bytes of the text in them.
    pub text_bytes: u64,
    /// Bytes of the files.
    pub disk_bytes: u64,
}

impl ShardsSummary {
    /// Bytes on the disk for each byte of text; 0 when there is no text.
    pub fn ratio(&self) -> f64 {
        share(self.disk_bytes, self.text_bytes)
    }
}

impl Report {
    /// The report of what was counted; tokenizer and shards are added later, where they are made.
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

    /// The text of `report.json`.
    pub fn to_json(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// The text of `report.html`: one page that needs neither network nor scripts.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// The same for the terminal: lines of at most 100 columns.
    pub fn to_table(&self) -> Vec<String> {
        table::lines(self)
    }

    /// The reasons, the one with the most documents first.
    pub(super) fn reasons(&self) -> Vec<(&str, Amount)> {
        let mut reasons: Vec<(&str, Amount)> =
            self.dropped.iter().map(|(reason, amount)| (reason.as_str(), *amount)).collect();
        reasons.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.documents));
        reasons
    }
}

/// `part / whole`; 0 when there is no whole.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A figure with three decimals, or as many as a small one needs.
pub(super) fn figure(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { format!("{value:.5}") } else { format!("{value:.3}") }
}
