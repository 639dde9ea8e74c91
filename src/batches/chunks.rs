//! Chunks of long documents: stretches that fill a row each, counted through all documents.
//!
//! A document has as many chunks as it holds from its beginning on; what is behind them is its rest. Some chunks
//! are for rows of short segments, as BERT's data had some (`short_seq_prob` of its `create_pretraining_data`):
//! where a token sees few others, a model learns sooner to attend to them. The index holds one entry for each
//! [`MARK_DOCUMENTS`] documents, so that its memory is a small part of the offsets in the shards, and finds a
//! chunk by reading the offsets of so many documents.

use std::ops::Range;

use anyhow::Result;

use crate::batches::documents::Documents;
use crate::error::Problem;

/// Documents that share an entry of the index.
const MARK_DOCUMENTS: u64 = 256;

/// Places of a short segment, special tokens included.
const SHORT_PLACES: u64 = 32;

/// Chunks after which lengths repeat, and those of them, the last ones, that are for short segments.
const TURN_CHUNKS: u64 = 2;
const SHORT_CHUNKS: u64 = 1;

/// The lengths of the chunks of a document, which repeat after a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    /// Tokens of a turn before each of its chunks, and those of all of them.
    before: Vec<u64>,
    /// Most tokens of a segment, for each chunk of a turn.
    segments: Vec<u64>,
}

impl Lengths {
    /// Chunks of `tokens` tokens, at least 1, which are a segment each.
    pub(super) fn even(tokens: u64) -> Self {
        Self { before: vec![0, tokens], segments: vec![tokens] }
    }

    /// Chunks for rows of `places` places, where each segment has `special` special tokens: [`SHORT_CHUNKS`] of
    /// [`TURN_CHUNKS`] chunks are for a row of short segments, unless the row is a short segment itself.
    pub(super) fn with_short_segments(places: u64, special: u64) -> Self {
        let whole = places.saturating_sub(special).max(1);
        let short_segments = places / SHORT_PLACES;
        if short_segments < 2 {
            return Self::even(whole);
        }
        let short = places - short_segments * special;
        let mut lengths = Self { before: vec![0], segments: Vec::new() };
        for chunk in 0..TURN_CHUNKS {
            let is_short = chunk >= TURN_CHUNKS - SHORT_CHUNKS;
            let (tokens, segment) =
                if is_short { (short, short.div_ceil(short_segments)) } else { (whole, whole) };
            lengths.before.push(lengths.turn_tokens() + tokens);
            lengths.segments.push(segment);
        }
        lengths
    }

    fn turn_tokens(&self) -> u64 {
        self.before.last().copied().unwrap_or_default()
    }

    fn turn_chunks(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Chunks of a document of `document_tokens`, and the tokens in them.
    fn of(&self, document_tokens: u64) -> (u64, u64) {
        let (turns, left) = (document_tokens / self.turn_tokens(), document_tokens % self.turn_tokens());
        let chunks = self.before.partition_point(|before| *before <= left) - 1;
        (turns * self.turn_chunks() + chunks as u64, turns * self.turn_tokens() + self.before[chunks])
    }

    /// Tokens of a document of `document_tokens` that are in chunks.
    pub(super) fn in_chunks(&self, document_tokens: u64) -> u64 {
        self.of(document_tokens).1
    }

    /// Chunk `number` of a document: the tokens before it, its tokens, and most tokens of a segment.
    fn chunk(&self, number: u64) -> (u64, u64, u64) {
        let (turns, at) = (number / self.turn_chunks(), (number % self.turn_chunks()) as usize);
        let count = self.before[at + 1] - self.before[at];
        (turns * self.turn_tokens() + self.before[at], count, self.segments[at])
    }
}

/// The chunks of some documents.
#[derive(Debug, Default)]
pub(super) struct ChunkIndex {
    lengths: Lengths,
    marks: Vec<Mark>,
    len: u64,
    tokens: u64,
}

/// Some documents that follow each other and have chunks.
#[derive(Debug)]
struct Mark {
    /// Number of their first chunk.
    first_chunk: u64,
    /// Tokens of the chunks before that one.
    tokens_before: u64,
    first_document: u64,
    documents: u64,
}

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk<P> {
    /// The document that it is of.
    pub(super) document: u64,
    /// The place of the chunk's document in the shards.
    pub(super) place: P,
    /// Its tokens.
    pub(super) document_tokens: u64,
    /// Tokens of the document before the chunk.
    pub(super) from: u64,
    /// Tokens of the chunk.
    pub(super) count: u64,
    /// Most tokens of a segment.
    pub(super) segment_tokens: u64,
}

impl ChunkIndex {
    /// The chunks of these lengths of the documents in `ranges`, each of which lies within one run of
    /// `documents`.
    pub(super) fn new<D: Documents>(documents: &D, ranges: &[Range<u64>], lengths: Lengths) -> Result<Self> {
        let mut index = Self { lengths, ..Self::default() };
        for range in ranges {
            for first_document in range.clone().step_by(MARK_DOCUMENTS as usize) {
                let count = MARK_DOCUMENTS.min(range.end - first_document);
                let places = documents.locate_run(first_document, count)?;
                let (mut chunks, mut tokens) = (0, 0);
                for (_, document_tokens) in places {
                    let (of_document, in_chunks) = index.lengths.of(document_tokens);
                    (chunks, tokens) = (chunks + of_document, tokens + in_chunks);
                }
                if chunks > 0 {
                    let (first_chunk, tokens_before) = (index.len, index.tokens);
                    index.marks.push(Mark { first_chunk, tokens_before, first_document, documents: count });
                    (index.len, index.tokens) = (index.len + chunks, index.tokens + tokens);
                }
            }
        }
        Ok(index)
    }

    /// The lengths of chunks.
    pub(super) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// The number of chunks.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Chunks of the documents before `document`, with which a range begins, and the tokens of these chunks.
    pub(super) fn before(&self, document: u64) -> (u64, u64) {
        let next = self.marks.partition_point(|mark| mark.first_document < document);
        self.marks.get(next).map_or((self.len, self.tokens), |mark| (mark.first_chunk, mark.tokens_before))
    }

    /// Chunk `number`, which must be below [`len`](Self::len).
    pub(super) fn find<D: Documents>(&self, documents: &D, number: u64) -> Result<Chunk<D::Place>> {
        let next = self.marks.partition_point(|mark| mark.first_chunk <= number);
        let mark = &self.marks[next - 1];
        let mut left = number - mark.first_chunk;
        let places = documents.locate_run(mark.first_document, mark.documents)?;
        for (document, (place, document_tokens)) in (mark.first_document..).zip(places) {
            let (chunks, _) = self.lengths.of(document_tokens);
            if left < chunks {
                let (from, count, segment_tokens) = self.lengths.chunk(left);
                return Ok(Chunk { document, place, document_tokens, from, count, segment_tokens });
            }
            left -= chunks;
        }
        Err(Problem::new("the shards have changed since they were opened").into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shards::ShardSet;

    #[test]
    fn every_chunk_is_found_and_short_documents_take_no_memory() {
        let lengths: Vec<usize> =
            (0..2000).map(|n| if n % 700 == 3 { 1000 + n } else { n % 10 }).chain([20, 30]).collect();
        let documents: Vec<Vec<u32>> = lengths.iter().map(|length| vec![7; *length]).collect();
        let sources: [(&str, &[Vec<u32>]); 2] = [("a", &documents[..2000]), ("b", &documents[2000..])];
        let set = Arc::new(ShardSet::in_memory_sources(&sources, 10));
        let index = ChunkIndex::new(&set, &set.ranges(), Lengths::even(10)).unwrap();
        assert_eq!((index.marks.len(), index.before(0).0, index.before(2000).0), (4, 0, index.len() - 5));
        let mut expected = Vec::new();
        for (document, length) in (0..).zip(&lengths) {
            expected.extend((0..length / 10).map(|chunk| (document, 10 * chunk as u64)));
        }
        let found: Vec<(u64, u64)> = (0..index.len())
            .map(|number| index.find(&set, number).map(|chunk| (chunk.document, chunk.from)).unwrap())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn chunks_of_any_document_follow_each_other_and_fill_their_rows() {
        let lengths = Lengths::with_short_segments(128, 2);
        for document_tokens in [0, 1, 125, 126, 127, 245, 246, 247, 371, 372, 10_000] {
            let (chunks, in_chunks) = lengths.of(document_tokens);
            let mut end = 0;
            for number in 0..chunks {
                let (from, count, segment_tokens) = lengths.chunk(number);
                assert_eq!(from, end);
                assert_eq!(count + 2 * count.div_ceil(segment_tokens), 128, "the places of a row");
                assert_eq!(segment_tokens, if number % 2 == 1 { 30 } else { 126 });
                end += count;
            }
            assert_eq!(end, in_chunks);
            assert!(document_tokens - in_chunks < 126, "{document_tokens}: a chunk more has room");
        }
        assert_eq!(
            Lengths::with_short_segments(63, 2),
            Lengths::even(61),
            "no row is shorter than a segment"
        );
        let odd = Lengths::with_short_segments(100, 2);
        assert_eq!((odd.chunk(1), odd.of(98 + 94)), ((98, 94, 32), (2, 192)));
    }
}
