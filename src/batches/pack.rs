//! Packs documents into rows: each piece becomes a segment `<s> piece </s>`, and rows are filled greedily.
//!
//! A document that does not fit goes on in the next row as a new segment; no token is dropped and nothing is padded.
//! Rows never cross the end of an epoch, so an epoch's last row may be short. Masking comes later.

use std::sync::Arc;

use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;

use crate::batches::Order;
use crate::error::Problem;
use crate::shards::Place;
use crate::shards::ShardSet;
use crate::tokenizer::Tokenizer;

/// A row with fewer places left is closed: a shorter piece would have no context to learn from.
const SEGMENT_PLACES_MIN: usize = 8;

/// A row number takes this many bits of a sample id, the epoch the 16 above.
const ROW_BITS: u32 = 40;

/// What stands around a piece, and how long a row may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Starts each segment.
    pub cls: u32,
    /// Ends each segment.
    pub sep: u32,
    /// Most tokens of a row, special tokens included (S).
    pub max_seq_length: usize,
}

impl Frame {
    /// The frame of a tokenizer; a row must hold the two special tokens and at least one more.
    pub fn new(tokenizer: &Tokenizer, max_seq_length: usize) -> Result<Self> {
        if max_seq_length < 3 {
            return Err(Problem::usage(format!("is {max_seq_length}, a row has at least 3 tokens")).at("data.max_seq_length").into());
        }
        Ok(Self { cls: tokenizer.special().cls, sep: tokenizer.special().sep, max_seq_length })
    }
}

/// Where packing stands between two rows. All of resuming is to start from one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// Passes over the data that are complete.
    pub epoch: u64,
    /// Place in the epoch's order of the document that comes next.
    pub index: u64,
    /// Tokens of that document that are used already.
    pub token: u64,
    /// Rows made in this epoch.
    pub row: u64,
    /// Tokens used in this epoch, without special tokens.
    pub tokens: u64,
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

/// Makes rows, one after the other, epoch after epoch.
pub struct Packer {
    shards: Arc<ShardSet>,
    order: Order,
    frame: Frame,
    cursor: Cursor,
    /// The document at the cursor, once it was looked up.
    place: Option<Place>,
}

impl Packer {
    /// Starts at `cursor`, which must be one of these shards; shards without a token are an error.
    pub fn new(shards: Arc<ShardSet>, order: Order, frame: Frame, cursor: Cursor) -> Result<Self> {
        if shards.num_tokens() == 0 {
            return Err(Problem::new("the shards hold no token").into());
        }
        if cursor.index > shards.num_documents() || cursor.tokens > shards.num_tokens() {
            return Err(Problem::new(format!(
                "the position to go on from (document {}, token {}) is beyond the {} documents and {} tokens of the shards",
                cursor.index,
                cursor.tokens,
                shards.num_documents(),
                shards.num_tokens()
            ))
            .hint("the shards are not those that the checkpoint was trained on")
            .into());
        }
        Ok(Self { shards, order, frame, cursor, place: None })
    }

    /// Where the next row starts.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Passes over the data, with a fraction.
    pub fn epoch(&self) -> f64 {
        self.cursor.epoch as f64 + self.cursor.tokens as f64 / self.shards.num_tokens() as f64
    }

    /// The next row; it is never empty.
    pub fn next_row(&mut self) -> Result<Row> {
        loop {
            if self.cursor.index == self.shards.num_documents() {
                self.cursor = Cursor { epoch: self.cursor.epoch + 1, ..Cursor::default() };
            }
            let started_at = self.cursor.index;
            let row = self.fill()?;
            if !row.ids.is_empty() {
                self.cursor.row += 1;
                return Ok(row);
            }
            if started_at == 0 {
                return Err(Problem::new("the shards are damaged: no document has a token").into());
            }
        }
    }

    fn fill(&mut self) -> Result<Row> {
        let mut row = Row { sample_id: self.cursor.epoch << ROW_BITS | self.cursor.row, ..Row::default() };
        while self.cursor.index < self.shards.num_documents() {
            let room = self.frame.max_seq_length - row.ids.len();
            if is_full(row.ids.len(), room) {
                break;
            }
            let place = self.place()?;
            // Only a cursor that belongs to other shards can point behind the document.
            let left = place.len.checked_sub(self.cursor.token).ok_or_else(|| {
                Problem::new(format!("the position to go on from is token {} of a document of {}", self.cursor.token, place.len))
            })?;
            let count = left.min(room as u64 - 2);
            if count > 0 {
                row.ids.push(self.frame.cls);
                self.shards.read(&place, self.cursor.token, count, &mut row.ids)?;
                row.ids.push(self.frame.sep);
                row.segment_ends.push(row.ids.len() as u32);
            }
            self.advance(count, count == left);
        }
        Ok(row)
    }

    fn place(&mut self) -> Result<Place> {
        if let Some(place) = self.place {
            return Ok(place);
        }
        let document = self.order.document(self.cursor.epoch, self.cursor.index, self.shards.num_documents());
        Ok(*self.place.insert(self.shards.locate(document)?))
    }

    fn advance(&mut self, count: u64, is_done: bool) {
        self.cursor.token += count;
        self.cursor.tokens += count;
        if is_done {
            self.cursor.index += 1;
            self.cursor.token = 0;
            self.place = None;
        }
    }
}

/// Whether a row with `used` tokens and `room` more places takes no further segment.
fn is_full(used: usize, room: usize) -> bool {
    used > 0 && room < SEGMENT_PLACES_MIN
}

/// Rows of the first epoch, exactly: packing is played through on the lengths alone.
///
/// Later epochs have another order and so differ by a few rows; steps are planned with this number for every epoch.
pub fn rows_per_epoch(shards: &ShardSet, order: Order, max_seq_length: usize) -> Result<u64> {
    let lengths = shards.lengths()?;
    let (mut rows, mut used) = (0, 0);
    for index in 0..lengths.len() as u64 {
        let mut left = lengths[order.document(0, index, lengths.len() as u64) as usize] as usize;
        while left > 0 {
            if used == 0 || is_full(used, max_seq_length - used) {
                rows += 1;
                used = 0;
            }
            let count = left.min(max_seq_length - used - 2);
            used += count + 2;
            left -= count;
        }
    }
    Ok(rows)
}
