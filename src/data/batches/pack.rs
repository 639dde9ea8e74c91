//! Makes rows: reads the planned pieces and puts special tokens around them. Masking comes later.

use std::sync::Arc;

use anyhow::Result;

use crate::batches::best_fit::Piece;
use crate::batches::planner::Planner;
use crate::batches::{Batch, Cursor, Frame, Order, Packing, Row};
use crate::shards::ShardSet;
use base::error::Problem;

/// Makes rows, one after the other, epoch after epoch.
pub struct Packer {
    shards: Arc<ShardSet>,
    frame: Frame,
    planner: Planner<Arc<ShardSet>>,
    /// The window of shards that was prefetched last.
    window_ahead: Option<usize>,
    /// Tokens of pieces that follow each other in a document.
    read: Vec<u32>,
    /// The bytes of these tokens in a shard.
    bytes: Vec<u8>,
}

impl Packer {
    /// Starts at `cursor`, which must belong to these shards; shards without a token are an error.
    pub fn new(shards: Arc<ShardSet>, order: Order, frame: Frame, cursor: Cursor) -> Result<Self> {
        Self::with_mixes(shards, &[order], frame, cursor)
    }

    /// As [`new`](Self::new), with an order for each mix of the sources. It begins with the first mix;
    /// [`set_mix`](Self::set_mix) changes to the others.
    pub fn with_mixes(shards: Arc<ShardSet>, orders: &[Order], frame: Frame, cursor: Cursor) -> Result<Self> {
        if shards.num_tokens() == 0 {
            return Err(Problem::new("the shards hold no token").into());
        }
        let planner = Planner::new(Arc::clone(&shards), orders, shards.sources(), frame, cursor)?;
        Ok(Self { shards, frame, planner, window_ahead: None, read: Vec::new(), bytes: Vec::new() })
    }

    /// The position of the next row.
    pub fn cursor(&self) -> Cursor {
        self.planner.cursor().clone()
    }

    /// Sets the mix of the sources for the following rows, from the next document or window on.
    pub fn set_mix(&mut self, mix: usize) -> Result<()> {
        self.planner.set_mix(mix)
    }

    /// Passes over the data, with a fraction.
    pub fn epoch(&self) -> f64 {
        self.planner.epoch()
    }

    /// If documents are ordered in windows of shards: loads the first window, and prefetches the next one in
    /// the background.
    pub(super) fn prefetch_shards(&mut self) -> Result<()> {
        let Some((windows, now)) = self.planner.shard_window() else { return Ok(()) };
        let next = windows.after(now);
        if self.window_ahead.is_none() {
            self.shards.bring(&windows.documents(now))?;
        }
        if self.window_ahead != Some(next) {
            self.shards.bring_meanwhile(windows.documents(next));
        }
        self.window_ahead = Some(next);
        Ok(())
    }

    /// Sets the length of the following rows, which may be longer than before.
    pub fn set_max_seq_length(&mut self, max_seq_length: usize) {
        self.frame.max_seq_length = max_seq_length;
        self.planner.set_max_seq_length(max_seq_length);
    }

    /// The next row; it is never empty.
    pub fn next_row(&mut self) -> Result<Row> {
        let mut batch = Batch::default();
        let sample_id = self.append_row(&mut batch)?;
        Ok(Row { sample_id, ids: batch.ids, segment_ends: batch.cu_seqlens })
    }

    /// The next row of this epoch; `None` at its end.
    pub fn next_row_of_epoch(&mut self) -> Result<Option<Row>> {
        let mut batch = Batch::default();
        let sample_id = self.append_row_of_epoch(&mut batch)?;
        Ok(sample_id.map(|sample_id| Row { sample_id, ids: batch.ids, segment_ends: batch.cu_seqlens }))
    }

    /// Skips rows without reading their tokens.
    pub fn skip_rows(&mut self, rows: usize) -> Result<()> {
        (0..rows).try_for_each(|_| self.planner.next_row().map(|_| ()))
    }

    /// Adds the next row to the ids of `batch`, and the ends of its segments to `cu_seqlens`; for pairs, also
    /// token types and labels. Returns its sample id.
    pub(super) fn append_row(&mut self, batch: &mut Batch) -> Result<u64> {
        let sample_id = self.planner.next_row()?;
        self.read(batch)?;
        Ok(sample_id)
    }

    /// As [`append_row`](Self::append_row), but `None` at the end of the epoch.
    pub(super) fn append_row_of_epoch(&mut self, batch: &mut Batch) -> Result<Option<u64>> {
        let Some(sample_id) = self.planner.next_row_of_epoch()? else { return Ok(None) };
        self.read(batch)?;
        Ok(Some(sample_id))
    }

    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        let Frame { cls, sep, packing, .. } = self.frame;
        if let Packing::Pairs(_) = packing {
            return self.read_pairs(batch);
        }
        let (joined, separated) = match packing {
            Packing::FullSentences { separator } => (true, separator),
            _ => (false, false),
        };
        let ids = &mut batch.ids;
        let segment_ends = &mut batch.cu_seqlens;
        let pieces = self.planner.pieces();
        let mut number = 0;
        // The segments of a chunk follow each other in the document: one read is enough for all.
        for pieces_of_document in pieces.chunk_by(Piece::is_followed_by) {
            let first = &pieces_of_document[0];
            let count = pieces_of_document.iter().map(|piece| piece.count).sum();
            self.read.clear();
            self.shards.read(&first.place, first.from, count, &mut self.bytes, &mut self.read)?;
            let mut left = self.read.as_slice();
            for piece in pieces_of_document {
                let (tokens, after) = left.split_at(piece.count as usize);
                left = after;
                let is_first = number == 0;
                number += 1;
                let is_last = number == pieces.len();
                if is_first || !joined {
                    ids.push(cls);
                }
                ids.extend_from_slice(tokens);
                if is_last || !joined || separated {
                    ids.push(sep);
                }
                if is_last || !joined {
                    segment_ends.push(ids.len() as u32);
                }
            }
        }
        Ok(())
    }

    /// Adds the segments `[CLS] A [SEP] B [SEP]`; a piece that is too short for a pair has only A.
    fn read_pairs(&mut self, batch: &mut Batch) -> Result<()> {
        let mut pieces = self.planner.pieces().iter();
        for segment in self.planner.segments() {
            if let Some(label) = segment.label {
                batch.pair_positions.push(batch.ids.len() as u32);
                batch.pair_labels.push(label);
            }
            batch.ids.push(self.frame.cls);
            let texts = 1 + usize::from(segment.label.is_some());
            for (token_type, piece) in (0..).zip(pieces.by_ref().take(texts)) {
                self.shards.read(&piece.place, piece.from, piece.count, &mut self.bytes, &mut batch.ids)?;
                batch.ids.push(self.frame.sep);
                batch.token_type_ids.resize(batch.ids.len(), token_type);
            }
            batch.cu_seqlens.push(batch.ids.len() as u32);
        }
        Ok(())
    }
}
