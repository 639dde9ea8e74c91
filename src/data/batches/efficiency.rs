//! Measures how well rows are filled, by simulating one epoch of packing from the lengths of documents alone.

use std::fmt;

use anyhow::Result;

use crate::batches::best_fit::Piece;
use crate::batches::documents::Lengths;
use crate::batches::planner::Planner;
use crate::batches::{Cursor, Frame, Order, Packing};
use crate::shards::ShardSet;
use base::quantity::format_count;

/// Result of packing the first epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackingReport {
    /// Number of rows of the epoch.
    pub rows: u64,
    /// Places of those rows: rows x longest row.
    pub capacity: u64,
    /// Number of tokens in the rows, including special tokens.
    pub tokens: u64,
    /// Number of special tokens among them.
    pub special_tokens: u64,
    /// Number of documents of the epoch; a document that occurs twice counts twice.
    pub documents: u64,
    /// Number of documents that are divided among several rows.
    pub documents_cut: u64,
}

impl PackingReport {
    /// Share of the places that contain a token.
    pub fn fill(&self) -> f64 {
        self.tokens as f64 / self.capacity.max(1) as f64
    }

    /// Share of the tokens that are special.
    pub fn special_share(&self) -> f64 {
        self.special_tokens as f64 / self.tokens.max(1) as f64
    }

    /// Share of the documents that are cut.
    pub fn cut_share(&self) -> f64 {
        self.documents_cut as f64 / self.documents.max(1) as f64
    }
}

impl fmt::Display for PackingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rows an epoch, {:.1} % full, {:.1} % special tokens, \
             {} of {} documents continued in another row",
            format_count(self.rows),
            100.0 * self.fill(),
            100.0 * self.special_share(),
            format_count(self.documents_cut),
            format_count(self.documents)
        )
    }
}

/// Simulates the first epoch. Later epochs have another order, and so differ by a few rows.
pub fn packing_report(shards: &ShardSet, order: &Order, frame: Frame) -> Result<PackingReport> {
    let orders = std::slice::from_ref(order);
    let documents = order.sequence(shards.sources())?.places();
    let mut report = PackingReport { documents, ..PackingReport::default() };
    let mut planner =
        Planner::new(Lengths::new(shards)?, orders, shards.sources(), frame, Cursor::default())?;
    while planner.next_row_of_epoch()?.is_some() {
        let pieces = planner.pieces();
        let special = match frame.packing {
            Packing::FullSentences { separator } => 2 + if separator { pieces.len() as u64 - 1 } else { 0 },
            Packing::Segments | Packing::Documents | Packing::BestFit { .. } => 2 * pieces.len() as u64,
            // One start token for each segment, and one end token for each piece.
            Packing::Pairs(_) => (planner.segments().len() + pieces.len()) as u64,
        };
        report.rows += 1;
        report.special_tokens += special;
        report.tokens += special + pieces.iter().map(|piece| piece.count).sum::<u64>();
        report.documents_cut += match frame.packing {
            Packing::Pairs(_) => planner.segments().iter().filter(|segment| segment.is_cut).count() as u64,
            _ => pieces.iter().filter(|piece| begins_cut_document(piece)).count() as u64,
        };
    }
    report.capacity = report.rows * frame.max_seq_length as u64;
    Ok(report)
}

/// Returns true if a document begins with this piece and continues in another row.
fn begins_cut_document(piece: &Piece<()>) -> bool {
    piece.from == 0 && piece.count < piece.document_tokens
}

/// Exact number of rows of the first epoch; steps are planned with this number for every epoch.
pub fn rows_per_epoch(shards: &ShardSet, order: &Order, frame: Frame) -> Result<u64> {
    Ok(packing_report(shards, order, frame)?.rows)
}
