//! Puts the report of a prepared corpus together: documents read and left out, how well the tokenizer fits
//! each source, and the shards written.

use std::path::Path;

use anyhow::Result;

use crate::corpus::report::{
    Fertility as FertilityTable, REPORT_HTML, REPORT_JSON, Report, ShardsSummary, SplitSummary,
};
use crate::corpus::{Curated, Scan};
use crate::shards::Manifest;
use crate::tokenizer::{Comparison, Fertility, Tokenizer};
use base::error::Problem;
use base::fs;

const REPORT_BYTES_MAX: u64 = 64 << 20;

/// Text of each source, in bytes, on which two tokenizers are compared.
const COMPARED_BYTES: usize = 1 << 20;

/// A report that can be written into a prepared folder.
pub(super) struct Written(Report);

impl Written {
    /// Writes `report.json` and `report.html`.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        fs::write_bytes(&folder.join(REPORT_JSON), self.0.to_json()?.as_bytes())?;
        fs::write_bytes(&folder.join(REPORT_HTML), self.0.to_html().as_bytes())
    }
}

impl Written {
    /// Adds the sources of whose text the tokenizer does not know much, with the unknown share.
    pub(super) fn with_unknown_text(mut self, sources: Vec<(String, f64)>) -> Self {
        self.0.unknown_text = sources;
        self
    }
}

/// Reads the report of a prepared folder; `None` if it has no report.
pub fn read_report(folder: &Path) -> Result<Option<Report>> {
    let path = folder.join(REPORT_JSON);
    if !fs::exists(&path) {
        return Ok(None);
    }
    let text = fs::read_text_capped(&path, REPORT_BYTES_MAX)?;
    Ok(Some(
        serde_json::from_str(&text)
            .map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()))?,
    ))
}

/// Returns the report without the tables that need a tokenizer: of reading, filters and the split.
pub(super) fn without_tokens(curated: &Curated) -> Written {
    let split = curated.scan().map(|scan| summary(&scan)).unwrap_or_default();
    Written(Report::new(curated.tally.clone(), split))
}

/// Returns the complete report. With `other`, its tokenizer table compares `tokenizer` with `other`.
pub(super) fn with_tokens(
    curated: &Curated,
    scan: &Scan,
    tokenizer: &Tokenizer,
    other: Option<&Tokenizer>,
    manifest: &Manifest,
    fertility: &[Fertility],
) -> Result<Written> {
    let mut report = Report::new(curated.tally.clone(), summary(scan));
    report.tokenizer = Some(match other {
        None => fertility_table(&manifest.sources, fertility),
        Some(other) => {
            comparison_table(&manifest.sources, &compare(curated, scan, tokenizer, other, fertility.len())?)
        }
    });
    let train = &manifest.train;
    let validation = &manifest.validation;
    report.shards = Some(ShardsSummary {
        source_tokens: fertility.iter().map(|fertility| fertility.tokens).collect(),
        tokens: manifest.tokens(),
        text_bytes: train.text_bytes + validation.text_bytes,
        disk_bytes: train.shards.iter().chain(&validation.shards).map(|shard| shard.bytes).sum(),
    });
    Ok(Written(report))
}

fn summary(scan: &Scan) -> SplitSummary {
    SplitSummary { train: scan.train, validation: scan.validation }
}

fn figures(fertility: &Fertility) -> Vec<f64> {
    vec![fertility.tokens_per_word(), fertility.bytes_per_token(), fertility.unknown_rate()]
}

const COLUMNS: [&str; 3] = ["tokens_per_word", "bytes_per_token", "unknown_rate"];

fn fertility_table(sources: &[String], fertility: &[Fertility]) -> FertilityTable {
    let mut all = Fertility::default();
    for source in fertility {
        all.merge(source);
    }
    let rows = sources.iter().cloned().zip(fertility).chain([("all".to_string(), &all)]);
    FertilityTable {
        columns: COLUMNS.map(String::from).to_vec(),
        rows: rows
            .filter(|(_, counts)| counts.texts > 0)
            .map(|(name, counts)| (name, figures(counts)))
            .collect(),
    }
}

/// Returns the table of two tokenizers on a sample of each source: the columns of `ours`, and how `other`
/// compares.
fn comparison_table(sources: &[String], compared: &[Comparison]) -> FertilityTable {
    let columns = COLUMNS
        .into_iter()
        .chain(["other_tokens_per_word", "tokens_per_other_token"])
        .map(String::from)
        .collect();
    let rows = sources.iter().cloned().zip(compared).filter(|(_, counts)| counts.ours.texts > 0).map(
        |(name, counts)| {
            let other = vec![counts.other.tokens_per_word(), counts.token_ratio()];
            (name, [figures(&counts.ours), other].concat())
        },
    );
    FertilityTable { columns, rows: rows.collect() }
}

/// Runs both tokenizers on the first [`COMPARED_BYTES`] of each source.
fn compare(
    curated: &Curated,
    scan: &Scan,
    ours: &Tokenizer,
    other: &Tokenizer,
    sources: usize,
) -> Result<Vec<Comparison>> {
    let mut texts = vec![Vec::new(); sources];
    let mut bytes = vec![0; sources];
    for document in curated.kept.from_index(scan.split, 0) {
        let (_, _, document) = document?;
        if bytes[document.source] < COMPARED_BYTES {
            bytes[document.source] += document.text.len();
            texts[document.source].push(document.text);
        }
    }
    texts.iter().map(|texts| Comparison::of(ours, other, texts)).collect()
}
