//! The units of an epoch: whole documents, or chunks of long documents and the rests after the last chunk.
//!
//! Chunks have a separate order, drawn over all of them: rows of a long document are shuffled as if each were
//! a document. The rest of a document (after its last chunk) occurs at the document's place in the order of
//! documents; so if no document has a chunk, rows are those without chunks. If shards are grouped in windows,
//! so are chunks: those of a window are known once its shards are on this machine.

use anyhow::Result;

use crate::batches::chunks::{Chunk, ChunkIndex, Lengths};
use crate::batches::documents::Documents;
use crate::batches::planner::{Found, Planner, SPECIAL};
use crate::batches::{Cursor, Frame, Order, Packing, Sequence, pairs};
use crate::shards::SourceRange;
use base::error::Problem;

/// The content of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Documents, or their rests.
    Document,
    /// Chunks.
    Chunk,
}

/// The order of the documents of a mix of sources, and that of their chunks.
#[derive(Debug, Clone)]
pub(super) struct Mix {
    pub(super) documents: Sequence,
    /// `None` if there are no chunks, and if chunks are ordered in windows of shards.
    pub(super) chunks: Option<Sequence>,
}

impl Mix {
    /// Number of tokens of an epoch: exact if every source has weight 1, otherwise the mean over epochs.
    pub(super) fn tokens(&self) -> f64 {
        self.documents.tokens() + self.chunks.as_ref().map_or(0.0, Sequence::tokens)
    }

    /// Upper bound on the number of tokens of an epoch.
    pub(super) fn tokens_max(&self) -> u64 {
        self.documents.tokens_max() + self.chunks.as_ref().map_or(0, Sequence::tokens_max)
    }
}

/// The mixes of sources, and the chunks of their documents.
pub(super) struct Units<P> {
    orders: Vec<Order>,
    /// The sources as ranges of documents, with the tokens outside of chunks.
    documents: Vec<SourceRange>,
    chunks: Option<Chunks<P>>,
}

/// The current chunks.
struct Chunks<P> {
    index: ChunkIndex<P>,
    /// The sources as ranges of chunks.
    sources: Vec<SourceRange>,
    /// The window of shards to which the chunks belong; `None` if they are those of all shards.
    window: Option<usize>,
}

impl<P: Copy> Units<P> {
    /// The units of `documents` in these orders; a run has at least one order.
    pub(super) fn new<D: Documents<Place = P>>(
        documents: &D,
        orders: &[Order],
        sources: &[SourceRange],
        frame: Frame,
    ) -> Result<Self> {
        let mut units = Self { orders: orders.to_vec(), documents: sources.to_vec(), chunks: None };
        let special = if let Packing::Pairs(_) = frame.packing { pairs::SPECIAL } else { SPECIAL };
        if let Some(row) = frame.chunk_row.filter(|_| orders.iter().all(Order::is_shuffled)) {
            // In other modes a row is one segment, or its segments are pairs, whose lengths are drawn.
            let lengths = match frame.packing {
                Packing::Segments | Packing::BestFit { .. } => {
                    Lengths::with_short_segments(row as u64, special)
                }
                _ => Lengths::whole(row as u64, special),
            };
            let is_windowed = matches!(orders.first(), Some(Order::Windowed { .. }));
            let ranges = if is_windowed { Vec::new() } else { documents.runs() };
            let index = ChunkIndex::new(documents, &ranges, lengths)?;
            let sources = sources.iter().map(|source| {
                let (first_document, tokens_before) = index.before(source.first_document);
                let (end, tokens_to_end) = index.before(source.first_document + source.documents);
                let documents = end - first_document;
                let tokens = tokens_to_end - tokens_before;
                SourceRange { first_document, documents, tokens, ..source.clone() }
            });
            let sources: Vec<SourceRange> = sources.collect();
            for (rests, chunks) in units.documents.iter_mut().zip(&sources) {
                rests.tokens -= chunks.tokens;
            }
            units.chunks = Some(Chunks { index, sources, window: None });
        }
        Ok(units)
    }

    /// Mix `number` of the sources.
    pub(super) fn mix(&self, number: usize) -> Result<Mix> {
        let order = self.orders.get(number).ok_or_else(|| {
            Problem::new(format!(
                "the position to continue from is of mix {number} of the sources, there are {}",
                self.orders.len()
            ))
            .hint("the checkpoint is of a run with other `training.phases`")
        })?;
        let documents = order.sequence(&self.documents)?;
        let all = self.chunks.as_ref().filter(|_| documents.windows().is_none());
        let chunks = all.map(|chunks| order.chunks(&chunks.sources)).transpose()?;
        Ok(Mix { documents, chunks })
    }

    /// Returns true if documents are cut into chunks.
    pub(super) fn has_chunks(&self) -> bool {
        self.chunks.is_some()
    }

    /// Number of tokens in chunks, for a document of `tokens` tokens.
    pub(super) fn in_chunks(&self, tokens: u64) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.index.lengths().in_chunks(tokens))
    }

    /// Number of places of chunks in an epoch of `mix`, or in the current window of shards.
    pub(super) fn chunk_places(&self, mix: &Mix) -> u64 {
        match (&mix.chunks, &self.chunks) {
            (Some(sequence), _) => sequence.places(),
            (None, Some(chunks)) => chunks.index.len(),
            (None, None) => 0,
        }
    }

    /// Changes to the window of shards of `cursor`, if there are windows and chunks.
    pub(super) fn enter<D: Documents<Place = P>>(
        &mut self,
        documents: &D,
        first: &Mix,
        cursor: &Cursor,
    ) -> Result<()> {
        let Some((chunks, windows)) = self.chunks.as_mut().zip(first.documents.windows()) else {
            return Ok(());
        };
        let window = cursor.shard_window;
        if chunks.window == Some(window) {
            return Ok(());
        }
        chunks.index = ChunkIndex::new(documents, &windows.shards(window), chunks.index.lengths().clone())?;
        chunks.window = Some(window);
        if cursor.chunk > chunks.index.len() {
            let message = format!(
                "the position to continue from (chunk {}) is beyond the {} chunks of window {window}",
                cursor.chunk,
                chunks.index.len()
            );
            let hint = "the shards are not those that the checkpoint was trained on";
            return Err(Problem::new(message).hint(hint).into());
        }
        Ok(())
    }

    /// The chunk at the position of `cursor`.
    pub(super) fn chunk<D: Documents<Place = P>>(
        &self,
        first: &Mix,
        mixed: Option<&Mix>,
        cursor: &Cursor,
    ) -> Result<Found<P>> {
        let Cursor { epoch, chunk: index, shard_window, .. } = *cursor;
        let chunks = self.chunks.as_ref().ok_or_else(|| Problem::new("documents are not cut into chunks"))?;
        let (number, moves) = match (&first.chunks, mixed.and_then(|mixed| mixed.chunks.as_ref())) {
            (Some(first), None) => (first.document(epoch, index), None),
            (Some(first), Some(mixed)) => {
                let source = mixed.source(epoch, index);
                let (number, position) = first.next_of(source, cursor.chunk_positions[source]);
                (number, Some((source, position)))
            }
            (None, _) => {
                let windows = first.documents.windows();
                let count = chunks.index.len();
                let number = windows.map_or(index, |w| w.chunk(epoch, shard_window, count, index));
                (number, None)
            }
        };
        let Chunk { document, place, document_tokens: tokens, from, count, segment_tokens } =
            chunks.index.find::<D>(number);
        Ok(Found { document, place, tokens, from, count, segment_tokens, moves })
    }
}

impl<D: Documents> Planner<D> {
    /// The end of the documents or chunks of the epoch, or of the current window of shards.
    pub(super) fn places(&self, unit: Unit) -> u64 {
        let mix = self.current_mix();
        match (unit, mix.documents.windows()) {
            (Unit::Chunk, _) => self.units.chunk_places(mix),
            (Unit::Document, Some(windows)) if self.units.has_chunks() => {
                windows.places(self.cursor.shard_window).end
            }
            (Unit::Document, _) => mix.documents.places(),
        }
    }

    /// Returns true if documents, or chunks, are left in the epoch, or in the current window of shards.
    pub(super) fn has_left(&self, unit: Unit) -> bool {
        let place = if unit == Unit::Chunk { self.cursor.chunk } else { self.cursor.index };
        place < self.places(unit)
    }

    /// The content of the next row: documents or chunks, whichever have had the smaller share; `None` at the
    /// end of the epoch.
    pub(super) fn next_unit(&mut self) -> Result<Option<Unit>> {
        loop {
            if self.units.has_chunks() {
                self.units.enter(&self.documents, &self.first, &self.cursor)?;
            }
            if self.next_mix.is_some() {
                // Before the next mix begins, a document, chunk or window that is partly used is finished.
                let unit = if self.cursor.chunk_token > 0 { Unit::Chunk } else { Unit::Document };
                let is_open = self.cursor.chunk_token + self.cursor.token + self.cursor.window_seq_length > 0;
                return Ok(is_open.then_some(unit));
            }
            match (self.has_left(Unit::Document), self.has_left(Unit::Chunk)) {
                (true, true) => return Ok(Some(self.less_advanced_unit()?)),
                (true, false) => return Ok(Some(Unit::Document)),
                (false, true) => return Ok(Some(Unit::Chunk)),
                (false, false) => {}
            }
            let windows = self.first.documents.windows().filter(|_| self.units.has_chunks());
            let next = self.cursor.shard_window + 1;
            if windows.is_none_or(|windows| next == windows.len()) {
                return Ok(None);
            }
            self.cursor.shard_window = next;
            self.cursor.chunk = 0;
        }
    }

    /// Documents or chunks, whichever have had the smaller share of the epoch, or of the current window of
    /// shards.
    fn less_advanced_unit(&mut self) -> Result<Unit> {
        let windows = self.current_mix().documents.windows();
        let start = windows.map_or(0, |windows| windows.places(self.cursor.shard_window).start);
        let documents = self.places(Unit::Document) - start;
        let chunks = self.places(Unit::Chunk);
        let mut done = u128::from(self.cursor.index - start);
        let mut total = u128::from(documents);
        if let Packing::BestFit { window_documents } = self.packing {
            let (covered, rows) = self.open_window(window_documents)?;
            let rows = u128::from(rows.max(1));
            done = done * rows + u128::from(covered) * u128::from(self.cursor.window_row);
            total *= rows;
        }
        let is_chunk = u128::from(self.cursor.chunk) * total <= done * u128::from(chunks);
        Ok(if is_chunk { Unit::Chunk } else { Unit::Document })
    }

    /// The chunk at the cursor.
    pub(super) fn find_chunk(&self) -> Result<Found<D::Place>> {
        self.units.chunk::<D>(&self.first, self.mixed.as_ref(), &self.cursor)
    }
}
