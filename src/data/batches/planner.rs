//! Decides which pieces of which documents form the next row, from lengths alone: no token is read here.
//!
//! The packer reads the planned pieces, a rank skips the rows of the others, and reports simulate an epoch.
//! Rows never cross the end of an epoch, so an epoch's last row may be short; no token is left out in any
//! mode.

mod units;
mod window;

use anyhow::Result;

use crate::batches::best_fit::{Piece, Window};
use crate::batches::documents::Documents;
use crate::batches::order::Windows;
use crate::batches::pairs::{Draw, Segment};
use crate::batches::planner::units::{Mix, Unit, Units};
use crate::batches::{Cursor, Frame, Order, Packing, pairs};
use crate::shards::SourceRange;
use base::error::Problem;
use config::SentencePairs;

/// A row of segments is closed if fewer places are left: a shorter piece would have no context to learn from.
const SEGMENT_PLACES_MIN: u64 = 8;

/// Special tokens around a segment.
const SPECIAL: u64 = 2;

/// Bits of a sample id for the number of the row; the 16 bits above are the epoch.
const ROW_BITS: u32 = 40;

/// Plans rows, one after the other, epoch after epoch.
pub(super) struct Planner<D: Documents> {
    documents: D,
    units: Units<D::Place>,
    /// The first mix of sources. Later mixes continue each source in its order.
    first: Mix,
    /// The current mix, once it has changed.
    mixed: Option<Mix>,
    /// The number of the next mix, and that mix, which begins when the current document, chunk and window are
    /// used up.
    next_mix: Option<(usize, Mix)>,
    packing: Packing,
    max_seq_length: u64,
    cursor: Cursor,
    /// The document at the cursor, after it was looked up.
    document: Option<Found<D::Place>>,
    /// The chunk at the cursor, after it was looked up.
    chunk: Option<Found<D::Place>>,
    window: Option<Window<D::Place>>,
    /// The positions of the sources after the window.
    positions_after_window: Vec<u64>,
    pieces: Vec<Piece<D::Place>>,
    /// For pairs: the composition of the segments from the pieces.
    segments: Vec<Segment>,
}

/// A document, or a part of it, that was looked up.
#[derive(Debug, Clone, Copy)]
struct Found<P> {
    document: u64,
    place: P,
    /// Tokens of the document.
    tokens: u64,
    /// Tokens of the document before the part.
    from: u64,
    /// Tokens of the part.
    count: u64,
    /// Most tokens of a segment; `u64::MAX` if only the row limits them.
    segment_tokens: u64,
    /// If mixes change: its source, and the position of that source after this document or part.
    moves: Option<(usize, u64)>,
}

impl<D: Documents> Planner<D> {
    /// Starts at `cursor`, which must belong to these documents, with an order for each mix of `sources`.
    pub(super) fn new(
        documents: D,
        orders: &[Order],
        sources: &[SourceRange],
        frame: Frame,
        cursor: Cursor,
    ) -> Result<Self> {
        let packing = frame.packing;
        let max_seq_length = frame.max_seq_length as u64;
        let of_pairs = matches!(packing, Packing::Pairs(_));
        if of_pairs && max_seq_length < pairs::SPECIAL + pairs::TOKENS_MIN {
            let message = format!("rows of {max_seq_length} tokens hold no pair of segments");
            return Err(Problem::new(message).at("data.max_seq_length").into());
        }
        let units = Units::new(&documents, orders, sources, frame)?;
        let first = units.mix(0)?;
        let is_mixed = !cursor.positions.is_empty();
        let mixed = is_mixed.then(|| units.mix(cursor.mix)).transpose()?;
        let planner = Self {
            documents,
            units,
            first,
            mixed,
            next_mix: None,
            packing,
            max_seq_length,
            cursor,
            document: None,
            chunk: None,
            window: None,
            positions_after_window: Vec::new(),
            pieces: Vec::new(),
            segments: Vec::new(),
        };
        planner.check_cursor()?;
        Ok(planner)
    }

    /// Returns an error for a position of other shards, or of another order.
    fn check_cursor(&self) -> Result<()> {
        let cursor = &self.cursor;
        let mix = self.current_mix();
        let places = mix.documents.places();
        let sources = self.first.documents.num_sources();
        // The number of tokens in an epoch of a later mix depends on the positions of its sources.
        let tokens = if self.mixed.is_none() { mix.tokens_max() } else { u64::MAX };
        let windows = mix.documents.windows().map_or(1, Windows::len);
        let chunk_sources = if mix.chunks.is_some() { cursor.positions.len() } else { 0 };
        // The chunks of a window are known once it is entered.
        let is_known = mix.documents.windows().is_none() || !self.units.has_chunks();
        let chunks = if is_known { self.units.chunk_places(mix) } else { u64::MAX };
        if cursor.index > places
            || cursor.tokens > tokens
            || cursor.chunk > chunks
            || cursor.shard_window >= windows
            || ![0, sources].contains(&cursor.positions.len())
            || cursor.chunk_positions.len() != chunk_sources
        {
            let index = cursor.index;
            let used = cursor.tokens;
            return Err(Problem::new(format!(
                "the position to continue from (document {index}, token {used}) is beyond the {places} documents and {tokens} tokens of the shards",
            ))
            .hint("the shards are not those that the checkpoint was trained on")
            .into());
        }
        Ok(())
    }

    /// The current mix.
    fn current_mix(&self) -> &Mix {
        self.mixed.as_ref().unwrap_or(&self.first)
    }

    /// The position of the next row.
    pub(super) fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Passes over the data, with a fraction.
    pub(super) fn epoch(&self) -> f64 {
        if self.mixed.is_some() {
            // Counted in epochs of the first mix.
            return (self.cursor.tokens_before + self.cursor.tokens) as f64 / self.first.tokens();
        }
        let is_at_end = self.cursor.index == self.first.documents.places() && !self.has_left(Unit::Chunk);
        let part = if is_at_end { 1.0 } else { self.cursor.tokens as f64 / self.first.tokens() };
        self.cursor.epoch as f64 + part.min(1.0)
    }

    /// The windows of shards and the current one, if documents come in windows.
    pub(super) fn shard_window(&self) -> Option<(&Windows, usize)> {
        let windows = self.first.documents.windows()?;
        let now = if self.units.has_chunks() {
            self.cursor.shard_window
        } else {
            windows.window_of(self.cursor.index)
        };
        Some((windows, now))
    }

    /// The pieces of the row that was planned last.
    pub(super) fn pieces(&self) -> &[Piece<D::Place>] {
        &self.pieces
    }

    /// For pairs, the composition of that row's segments from its pieces.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Sets the length of the following rows, which may be longer than before. An open window is used up as
    /// it was planned.
    pub(super) fn set_max_seq_length(&mut self, max_seq_length: usize) {
        self.max_seq_length = max_seq_length as u64;
    }

    /// Sets the mix of the following rows, from the next document, chunk or window on; no row has documents
    /// of two mixes.
    pub(super) fn set_mix(&mut self, mix: usize) -> Result<()> {
        if mix != self.next_mix.as_ref().map_or(self.cursor.mix, |(mix, _)| *mix) {
            let is_other = mix != self.cursor.mix;
            self.next_mix = is_other.then(|| anyhow::Ok((mix, self.units.mix(mix)?))).transpose()?;
        }
        Ok(())
    }

    /// Begins an epoch of the next mix, if there is one and no document, chunk or window is partly used.
    fn begin_mix(&mut self) {
        let Cursor { epoch, index, token, row, window_seq_length, chunk, chunk_token, .. } = self.cursor;
        if token > 0 || chunk_token > 0 || window_seq_length > 0 {
            return;
        }
        let Some((mix, next)) = self.next_mix.take() else { return };
        if self.mixed.is_none() {
            self.cursor.positions = self.first.documents.positions(epoch, index);
            let chunks = self.first.chunks.as_ref();
            self.cursor.chunk_positions = chunks.map_or_else(Vec::new, |all| all.positions(epoch, chunk));
            self.cursor.tokens_before = (epoch as f64 * self.first.tokens()).round() as u64;
        }
        self.document = None;
        self.chunk = None;
        self.mixed = Some(next);
        self.cursor.mix = mix;
        if row > 0 || index > 0 || chunk > 0 {
            self.cursor = std::mem::take(&mut self.cursor).next_epoch();
        }
    }

    /// Plans the next row and returns its sample id.
    pub(super) fn next_row(&mut self) -> Result<u64> {
        loop {
            self.begin_mix();
            if let Some(sample_id) = self.next_row_of_epoch()? {
                return Ok(sample_id);
            }
            if self.cursor.row == 0 {
                return Err(Problem::new("the shards are damaged: no document has a token").into());
            }
            self.cursor = std::mem::take(&mut self.cursor).next_epoch();
        }
    }

    /// Plans the next row of this epoch; `None` at its end, even if called again.
    pub(super) fn next_row_of_epoch(&mut self) -> Result<Option<u64>> {
        self.pieces.clear();
        self.segments.clear();
        while self.pieces.is_empty() {
            match (self.next_unit()?, self.packing) {
                (None, _) => return Ok(None),
                (Some(Unit::Document), Packing::BestFit { window_documents }) => {
                    self.row_of_window(window_documents)?;
                }
                (Some(unit), _) => self.row_of(unit)?,
            }
        }
        let sample_id = self.cursor.epoch << ROW_BITS | self.cursor.row;
        self.cursor.row += 1;
        let drawn: u64 = self.segments.iter().map(|segment| segment.drawn).sum();
        self.cursor.tokens += self.pieces.iter().map(|piece| piece.count).sum::<u64>() - drawn;
        Ok(Some(sample_id))
    }

    /// Fills a row with documents, or with chunks.
    fn row_of(&mut self, unit: Unit) -> Result<()> {
        let mut used = 0;
        while self.has_left(unit) {
            let Some(room) = self.room(used) else { break };
            let found = self.look_up(unit)?;
            let done = *self.cursor.token_of(unit == Unit::Chunk);
            // Only a cursor that belongs to other shards can be past the end of the document.
            let left = found.count.checked_sub(done).ok_or_else(|| {
                Problem::new(format!(
                    "the position to continue from is token {done} of a document of {}",
                    found.count
                ))
            })?;
            let left_of_segment = found.segment_tokens - done % found.segment_tokens;
            let from = found.from + done;
            let mut count = left.min(room).min(left_of_segment);
            if let (Packing::Pairs(kind), 1..) = (self.packing, count) {
                used += count + self.overhead(used);
                count = self.push_pair(kind, &found, from, count)?;
            } else if count > 0 {
                let Found { place, tokens: document_tokens, .. } = found;
                self.pieces.push(Piece { place, document_tokens, from, count });
                used += count + self.overhead(used);
            }
            *self.cursor.token_of(unit == Unit::Chunk) += count;
            if count == left {
                self.advance(unit, found.moves);
                if self.next_mix.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Moves the cursor past the current document or chunk.
    fn advance(&mut self, unit: Unit, moves: Option<(usize, u64)>) {
        let Self { cursor, document, chunk, .. } = self;
        let (index, positions, found) = match unit {
            Unit::Document => (&mut cursor.index, &mut cursor.positions, document),
            Unit::Chunk => (&mut cursor.chunk, &mut cursor.chunk_positions, chunk),
        };
        *index += 1;
        *found = None;
        if let Some((source, position)) = moves {
            positions[source] = position;
        }
        *self.cursor.token_of(unit == Unit::Chunk) = 0;
    }

    /// Adds a pair made from `count` tokens of a document, those after its first `from`; returns the number
    /// of them that the pair uses.
    fn push_pair(
        &mut self,
        kind: SentencePairs,
        found: &Found<D::Place>,
        from: u64,
        count: u64,
    ) -> Result<u64> {
        let document_tokens = found.tokens;
        let whole = Piece { place: found.place, document_tokens, from, count };
        if count < pairs::TOKENS_MIN {
            self.pieces.push(whole);
            let is_cut = from == 0 && count < document_tokens;
            self.segments.push(Segment { label: None, drawn: 0, is_cut });
            return Ok(count);
        }
        let sample_id = self.cursor.epoch << ROW_BITS | self.cursor.row;
        // The order of an evaluation has no seed, and its pairs are the same in every run.
        let draw = Draw::new(self.first.documents.seed().unwrap_or(0), sample_id, self.segments.len() as u64);
        let first = draw.cut(count);
        let mut is_other = draw.is_other();
        let second = Piece { from: from + first, count: count - first, ..whole };
        let mut texts = [Piece { count: first, ..whole }, second];
        let mut drawn = 0;
        let mut taken = count;
        if is_other && kind == SentencePairs::NextSentence {
            let (place, tokens) = self.other_document(&draw, found.document, count - first)?;
            drawn = tokens.min(count - first);
            is_other = drawn > 0;
            if is_other {
                let from = draw.start(tokens, drawn);
                texts[1] = Piece { place, document_tokens: tokens, from, count: drawn };
                taken = first;
            }
        }
        self.pieces.extend(pairs::ordered(kind, is_other, texts));
        let is_cut = from == 0 && taken < document_tokens;
        self.segments.push(Segment { label: Some(u32::from(is_other)), drawn, is_cut });
        Ok(taken)
    }

    /// Another document than `but`, and its number of tokens: of several drawn documents, the first with
    /// `wanted` tokens, otherwise the longest, because a shorter text would reveal that it comes from another
    /// document.
    fn other_document(&self, draw: &Draw, but: u64, wanted: u64) -> Result<(D::Place, u64)> {
        let locate =
            |(stream, index)| self.documents.locate(self.current_mix().documents.drawn(stream, index, but));
        let mut longest = locate(draw.document(0))?;
        for attempt in 1..pairs::DOCUMENTS {
            if longest.1 >= wanted {
                break;
            }
            let other = locate(draw.document(attempt))?;
            if other.1 > longest.1 {
                longest = other;
            }
        }
        Ok(longest)
    }

    /// Number of tokens that the next piece may have in a row of which `used` places are taken; `None` if the
    /// row is full.
    fn room(&self, used: u64) -> Option<u64> {
        let left = self.max_seq_length - used;
        let is_full = match self.packing {
            Packing::Documents => true,
            Packing::FullSentences { .. } => left <= self.overhead(used),
            Packing::Segments | Packing::BestFit { .. } | Packing::Pairs(_) => left < SEGMENT_PLACES_MIN,
        };
        (used == 0 || !is_full).then(|| left - self.overhead(used))
    }

    /// Number of special tokens that are added with the next piece.
    fn overhead(&self, used: u64) -> u64 {
        match self.packing {
            Packing::FullSentences { separator } if used > 0 => u64::from(separator),
            Packing::Pairs(_) => pairs::SPECIAL,
            _ => SPECIAL,
        }
    }

    /// The document or the chunk at the cursor.
    fn look_up(&mut self, unit: Unit) -> Result<Found<D::Place>> {
        let known = if unit == Unit::Chunk { self.chunk } else { self.document };
        if let Some(found) = known {
            return Ok(found);
        }
        Ok(match unit {
            Unit::Document => {
                let found = self.find(self.cursor.index, &self.cursor.positions)?;
                *self.document.insert(found)
            }
            Unit::Chunk => {
                let found = self.find_chunk()?;
                *self.chunk.insert(found)
            }
        })
    }

    /// The document at place `index` of the epoch, or its rest; `positions` are the positions of the sources.
    fn find(&self, index: u64, positions: &[u64]) -> Result<Found<D::Place>> {
        let epoch = self.cursor.epoch;
        let first = &self.first.documents;
        let (document, moves) = match &self.mixed {
            None => (first.document(epoch, index), None),
            Some(mixed) => {
                let source = mixed.documents.source(epoch, index);
                let (document, position) = first.next_of(source, positions[source]);
                (document, Some((source, position)))
            }
        };
        let (place, tokens) = self.documents.locate(document)?;
        let from = self.units.in_chunks(tokens);
        Ok(Found { document, place, tokens, from, count: tokens - from, segment_tokens: u64::MAX, moves })
    }
}
