//! Decides which pieces of which documents make the next row, from lengths alone: no token is read here.
//!
//! The packer reads what is planned, a rank passes over the rows of the others, and reports play an epoch
//! through. Rows never cross the end of an epoch, so an epoch's last row may be short; no token is left out
//! in any mode.

use std::sync::Arc;

use anyhow::Result;

use crate::batches::Cursor;
use crate::batches::Frame;
use crate::batches::Packing;
use crate::batches::best_fit::Piece;
use crate::batches::best_fit::Window;
use crate::batches::order::Sequence;
use crate::batches::order::Windows;
use crate::batches::pairs;
use crate::batches::pairs::Draw;
use crate::batches::pairs::Segment;
use crate::config::SentencePairs;
use crate::error::Problem;
use crate::rng::Purpose;
use crate::rng::Stream;
use crate::shards::Place;
use crate::shards::ShardSet;

/// A row of segments with fewer places left is closed: a shorter piece would have no context to learn from.
const SEGMENT_PLACES_MIN: u64 = 8;

/// Special tokens around a segment.
const SPECIAL: u64 = 2;

/// A row number takes this many bits of a sample id, the epoch the 16 above.
const ROW_BITS: u32 = 40;

/// Streams that shuffle the rows of windows lie above those of the epochs.
const WINDOWS: u64 = 1 << 54;

/// A window ends when its tokens would fill this many rows, so that very long documents do not make it huge.
const WINDOW_ROWS_MAX: u64 = 1 << 16;

/// What a plan is made from.
pub(super) trait Documents {
    /// Where a document lies.
    type Place: Copy;

    /// Where document `index` lies, and its tokens.
    fn locate(&self, index: u64) -> Result<(Self::Place, u64)>;
}

impl Documents for Arc<ShardSet> {
    type Place = Place;

    fn locate(&self, index: u64) -> Result<(Place, u64)> {
        let place = ShardSet::locate(self, index)?;
        Ok((place, place.len))
    }
}

/// Only lengths, to play an epoch through.
pub(super) struct Lengths(pub(super) Vec<u32>);

impl Documents for Lengths {
    type Place = ();

    fn locate(&self, index: u64) -> Result<((), u64)> {
        Ok(((), u64::from(self.0[index as usize])))
    }
}

/// Plans rows, one after the other, epoch after epoch.
pub(super) struct Planner<D: Documents> {
    documents: D,
    /// The order of the first mix of sources, in which each source goes on in later ones.
    first: Sequence,
    /// The order of the mix at hand, once it has changed.
    mixed: Option<Sequence>,
    /// The mix, and its order, that begins when the document at hand is used up.
    next_mix: Option<(usize, Sequence)>,
    packing: Packing,
    max_seq_length: u64,
    cursor: Cursor,
    /// The document at the cursor, once it was looked up.
    document: Option<Found<D::Place>>,
    window: Option<Window<D::Place>>,
    /// Where sources stand behind the window.
    behind_window: Vec<u64>,
    pieces: Vec<Piece<D::Place>>,
    /// Of pairs: what the pieces are.
    segments: Vec<Segment>,
}

/// A document that was looked up.
#[derive(Debug, Clone, Copy)]
struct Found<P> {
    document: u64,
    place: P,
    tokens: u64,
    /// Its source and where that stands behind it, where mixes change.
    moves: Option<(usize, u64)>,
}

impl<D: Documents> Planner<D> {
    /// Starts at `cursor`, which must be one of these documents.
    pub(super) fn new(documents: D, first: Sequence, frame: Frame, cursor: Cursor) -> Result<Self> {
        Self::in_mix(documents, first, None, frame, cursor)
    }

    /// Starts at `cursor`, which lies in the mix of `mixed`, or in the `first` one.
    pub(super) fn in_mix(
        documents: D,
        first: Sequence,
        mixed: Option<Sequence>,
        frame: Frame,
        cursor: Cursor,
    ) -> Result<Self> {
        let places = mixed.as_ref().unwrap_or(&first).places();
        // How many tokens an epoch of a later mix has depends on where its sources stand.
        let tokens = if mixed.is_none() { first.tokens_max() } else { u64::MAX };
        let of_sources = [0, first.num_sources()].contains(&cursor.positions.len());
        if cursor.index > places || cursor.tokens > tokens || !of_sources {
            let (index, used) = (cursor.index, cursor.tokens);
            return Err(Problem::new(format!(
                "the position to continue from (document {index}, token {used}) is beyond the {places} documents and {tokens} tokens of the shards",
            ))
            .hint("the shards are not those that the checkpoint was trained on")
            .into());
        }
        let (packing, max_seq_length) = (frame.packing, frame.max_seq_length as u64);
        let of_pairs = matches!(packing, Packing::Pairs(_));
        if of_pairs && max_seq_length < pairs::SPECIAL + pairs::TOKENS_MIN {
            let message = format!("rows of {max_seq_length} tokens hold no pair of segments");
            return Err(Problem::new(message).at("data.max_seq_length").into());
        }
        Ok(Self {
            documents,
            first,
            mixed,
            next_mix: None,
            packing,
            max_seq_length,
            cursor,
            document: None,
            window: None,
            behind_window: Vec::new(),
            pieces: Vec::new(),
            segments: Vec::new(),
        })
    }

    /// The order of the mix at hand.
    fn sequence(&self) -> &Sequence {
        self.mixed.as_ref().unwrap_or(&self.first)
    }

    /// Where the next row starts.
    pub(super) fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Passes over the data, with a fraction.
    pub(super) fn epoch(&self) -> f64 {
        if self.mixed.is_some() {
            // In epochs of the first mix.
            return (self.cursor.tokens_before + self.cursor.tokens) as f64 / self.first.tokens();
        }
        let part = if self.cursor.index == self.first.places() {
            1.0
        } else {
            self.cursor.tokens as f64 / self.first.tokens()
        };
        self.cursor.epoch as f64 + part.min(1.0)
    }

    /// Where documents come in windows: these, and the one that is at hand.
    pub(super) fn window(&self) -> Option<(&Windows, usize)> {
        let windows = self.sequence().windows()?;
        Some((windows, windows.at(self.cursor.index)))
    }

    /// The pieces of the row that was planned last.
    pub(super) fn pieces(&self) -> &[Piece<D::Place>] {
        &self.pieces
    }

    /// Of pairs, how the segments of that row are made of its pieces.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The rows to come may be longer than those before. A window that is open is used up as it was planned.
    pub(super) fn set_max_seq_length(&mut self, max_seq_length: usize) {
        self.max_seq_length = max_seq_length as u64;
    }

    /// The mix that the rows to come are of, but for what is left of a document or of a window.
    pub(super) fn mix(&self) -> usize {
        self.next_mix.as_ref().map_or(self.cursor.mix, |(mix, _)| *mix)
    }

    /// The rows to come are of another mix, from the next document or window on; no row has documents of
    /// both.
    pub(super) fn change_mix(&mut self, mix: usize, sequence: Sequence) {
        self.next_mix = (mix != self.cursor.mix).then_some((mix, sequence));
    }

    /// Begins an epoch of the next mix, if there is one and nothing of the last one is left.
    fn begin_mix(&mut self) {
        let Cursor { epoch, index, token, row, window_seq_length, .. } = self.cursor;
        if token > 0 || window_seq_length > 0 {
            return;
        }
        let Some((mix, sequence)) = self.next_mix.take() else { return };
        if self.mixed.is_none() {
            self.cursor.positions = self.first.positions(epoch, index);
            self.cursor.tokens_before = (epoch as f64 * self.first.tokens()).round() as u64;
        }
        (self.mixed, self.document, self.cursor.mix) = (Some(sequence), None, mix);
        if row > 0 || index > 0 {
            self.cursor = std::mem::take(&mut self.cursor).next_epoch();
        }
    }

    /// Plans the next row and gives its sample id.
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

    /// Plans the next row of this epoch; `None` at its end, however often it is asked.
    pub(super) fn next_row_of_epoch(&mut self) -> Result<Option<u64>> {
        self.pieces.clear();
        self.segments.clear();
        match self.packing {
            Packing::BestFit { window_documents } => self.row_of_window(window_documents)?,
            Packing::Segments | Packing::FullSentences { .. } | Packing::Documents | Packing::Pairs(_) => {
                self.row_of_documents()?;
            }
        }
        if self.pieces.is_empty() {
            return Ok(None);
        }
        let sample_id = self.cursor.epoch << ROW_BITS | self.cursor.row;
        self.cursor.row += 1;
        let drawn: u64 = self.segments.iter().map(|segment| segment.drawn).sum();
        self.cursor.tokens += self.pieces.iter().map(|piece| piece.count).sum::<u64>() - drawn;
        Ok(Some(sample_id))
    }

    fn row_of_documents(&mut self) -> Result<()> {
        let mut used = 0;
        while self.cursor.index < self.sequence().places() {
            let Some(room) = self.room(used) else { break };
            let found = self.document()?;
            let Found { place, tokens: document_tokens, moves, .. } = found;
            let from = self.cursor.token;
            // Only a cursor that belongs to other shards can point behind the document.
            let left = document_tokens.checked_sub(from).ok_or_else(|| {
                Problem::new(format!(
                    "the position to continue from is token {from} of a document of {document_tokens}"
                ))
            })?;
            let mut count = left.min(room);
            if let (Packing::Pairs(kind), 1..) = (self.packing, count) {
                used += count + self.overhead(used);
                count = self.push_pair(kind, &found, count)?;
            } else if count > 0 {
                self.pieces.push(Piece { place, document_tokens, from, count });
                used += count + self.overhead(used);
            }
            self.cursor.token += count;
            if count == left {
                self.cursor.index += 1;
                self.cursor.token = 0;
                self.document = None;
                if let Some((source, position)) = moves {
                    self.cursor.positions[source] = position;
                }
                if self.next_mix.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds the pair that the next `count` tokens of a document are for, and gives how many of them it takes.
    fn push_pair(&mut self, kind: SentencePairs, found: &Found<D::Place>, count: u64) -> Result<u64> {
        let (from, document_tokens) = (self.cursor.token, found.tokens);
        let piece = |from, count| Piece { place: found.place, document_tokens, from, count };
        let is_cut = |taken| from == 0 && taken < document_tokens;
        if count < pairs::TOKENS_MIN {
            self.pieces.push(piece(from, count));
            self.segments.push(Segment { label: None, drawn: 0, is_cut: is_cut(count) });
            return Ok(count);
        }
        let sample_id = self.cursor.epoch << ROW_BITS | self.cursor.row;
        // The order of an evaluation has no seed, and its pairs are the same in every run.
        let draw = Draw::new(self.first.seed().unwrap_or(0), sample_id, self.segments.len() as u64);
        let (first, mut is_other) = (draw.cut(count), draw.is_other());
        let mut texts = [piece(from, first), piece(from + first, count - first)];
        let (mut drawn, mut taken) = (0, count);
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
        self.segments.push(Segment { label: Some(u32::from(is_other)), drawn, is_cut: is_cut(taken) });
        Ok(taken)
    }

    /// Another document than `but`, and its tokens: one of several that are drawn, the first that has `wanted`
    /// tokens or else the longest, because a shorter text would give away that it is another's.
    fn other_document(&self, draw: &Draw, but: u64, wanted: u64) -> Result<(D::Place, u64)> {
        let locate = |(stream, index)| self.documents.locate(self.sequence().drawn(stream, index, but));
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

    /// Tokens that the next piece may have in a row of which `used` places are taken; `None` when the row is
    /// full.
    fn room(&self, used: u64) -> Option<u64> {
        let left = self.max_seq_length - used;
        let is_full = match self.packing {
            Packing::Documents => true,
            Packing::FullSentences { .. } => left <= self.overhead(used),
            Packing::Segments | Packing::BestFit { .. } | Packing::Pairs(_) => left < SEGMENT_PLACES_MIN,
        };
        (used == 0 || !is_full).then(|| left - self.overhead(used))
    }

    /// Special tokens that the next piece brings along.
    fn overhead(&self, used: u64) -> u64 {
        match self.packing {
            Packing::FullSentences { separator } if used > 0 => u64::from(separator),
            Packing::Pairs(_) => pairs::SPECIAL,
            _ => SPECIAL,
        }
    }

    fn document(&mut self) -> Result<Found<D::Place>> {
        if let Some(document) = self.document {
            return Ok(document);
        }
        let found = self.find(self.cursor.index, &self.cursor.positions)?;
        Ok(*self.document.insert(found))
    }

    /// The document at place `index` of the epoch, where sources stand at `positions`.
    fn find(&self, index: u64, positions: &[u64]) -> Result<Found<D::Place>> {
        let epoch = self.cursor.epoch;
        let (document, moves) = match &self.mixed {
            None => (self.first.document(epoch, index), None),
            Some(mixed) => {
                let source = mixed.source(epoch, index);
                let (document, position) = self.first.next_of(source, positions[source]);
                (document, Some((source, position)))
            }
        };
        let (place, tokens) = self.documents.locate(document)?;
        Ok(Found { document, place, tokens, moves })
    }

    fn row_of_window(&mut self, window_documents: u64) -> Result<()> {
        while self.pieces.is_empty() && self.cursor.index < self.sequence().places() {
            let window = match self.window.take() {
                Some(window) => window,
                None => self.plan_window(window_documents)?,
            };
            if let Some(pieces) = window.row(self.cursor.window_row) {
                self.pieces.extend_from_slice(pieces);
                self.cursor.window_row += 1;
            }
            if self.cursor.window_row < window.len() {
                self.window = Some(window);
            } else {
                self.cursor.index += window.documents;
                self.cursor.positions = std::mem::take(&mut self.behind_window);
                (self.cursor.window_row, self.cursor.window_seq_length) = (0, 0);
            }
        }
        Ok(())
    }

    fn plan_window(&mut self, window_documents: u64) -> Result<Window<D::Place>> {
        let Cursor { epoch, index: first, .. } = self.cursor;
        let mut positions = self.cursor.positions.clone();
        if self.cursor.window_seq_length == 0 {
            self.cursor.window_seq_length = self.max_seq_length;
        }
        let length = self.cursor.window_seq_length;
        if length <= SPECIAL || length > self.max_seq_length {
            let message = format!(
                "the position to continue from is of rows of {length} tokens, these have {}",
                self.max_seq_length
            );
            return Err(Problem::new(message).hint("the checkpoint is of a run with longer rows").into());
        }
        let end = self.sequence().places().min(first.saturating_add(window_documents));
        let (mut whole, mut tokens) = (Vec::new(), 0);
        while first + (whole.len() as u64) < end && tokens < WINDOW_ROWS_MAX * length {
            let found = self.find(first + whole.len() as u64, &positions)?;
            if let Some((source, position)) = found.moves {
                positions[source] = position;
            }
            tokens += found.tokens;
            whole.push((found.place, found.tokens));
        }
        self.behind_window = positions;
        let id = WINDOWS | (epoch & 0x3fff) << ROW_BITS | first & ((1 << ROW_BITS) - 1);
        let shuffle = self.first.seed().map(|seed| Stream::new(seed, Purpose::Order, id));
        Ok(Window::plan(whole.len() as u64, &whole, length, shuffle))
    }
}
