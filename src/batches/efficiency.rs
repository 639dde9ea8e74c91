//! How well rows are filled: plays one epoch of packing through, on the lengths of documents alone.

use std::fmt;

use anyhow::Result;

use crate::batches::Cursor;
use crate::batches::Frame;
use crate::batches::Order;
use crate::batches::Packing;
use crate::batches::best_fit::Piece;
use crate::batches::documents::Lengths;
use crate::batches::planner::Planner;
use crate::quantity::format_count;
use crate::shards::ShardSet;

/// What packing makes of the first epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackingReport {
    /// Rows of the epoch.
    pub rows: u64,
    /// Places of those rows: rows x longest row.
    pub capacity: u64,
    /// Tokens in them, special tokens included.
    pub tokens: u64,
    /// Special tokens among them.
    pub special_tokens: u64,
    /// Documents of the epoch; one that comes twice counts twice.
    pub documents: u64,
    /// Documents that stand in more than one row.
    pub documents_cut: u64,
}

impl PackingReport {
    /// Share of the places that hold a token.
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

/// Plays the first epoch through. Later ones have another order, and so differ by a few rows.
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
            // A start for each segment, and an end for each piece.
            Packing::Pairs(_) => (planner.segments().len() + pieces.len()) as u64,
        };
        report.rows += 1;
        report.special_tokens += special;
        report.tokens += special + pieces.iter().map(|piece| piece.count).sum::<u64>();
        let is_cut = |piece: &&Piece<()>| piece.from == 0 && piece.count < piece.document_tokens;
        report.documents_cut += match frame.packing {
            Packing::Pairs(_) => planner.segments().iter().filter(|segment| segment.is_cut).count() as u64,
            _ => pieces.iter().filter(is_cut).count() as u64,
        };
    }
    report.capacity = report.rows * frame.max_seq_length as u64;
    Ok(report)
}

/// Rows of the first epoch, exactly; steps are planned with this number for every epoch.
pub fn rows_per_epoch(shards: &ShardSet, order: &Order, frame: Frame) -> Result<u64> {
    Ok(packing_report(shards, order, frame)?.rows)
}
