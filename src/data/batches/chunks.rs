//! Chunks of long documents. Each chunk fills a row; chunks are numbered through all documents.
//!
//! A document is divided into chunks from its beginning. The tokens after its last chunk are its rest. Every
//! other chunk is for a row of short segments: if a token attends to few others, a model learns sooner to
//! attend to them. (BERT's `create_pretraining_data` had `short_seq_prob` for a similar purpose.)
//!
//! The index has one entry of 16 bytes per document with chunks, so that it needs much less memory than the
//! shards, and a chunk is found without reading them.

use std::ops::Range;

use anyhow::Result;

use crate::batches::documents::Documents;
use base::error::Problem;

/// Places of a short segment, including special tokens.
const SHORT_PLACES: u64 = 32;

/// The lengths of chunks in tokens: all are whole, or whole and short ones alternate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    /// A whole chunk, which is one segment.
    whole: u64,
    /// A chunk of short segments; 0 if there are none.
    short: u64,
    /// The longest short segment.
    segment: u64,
}

impl Lengths {
    /// Whole chunks for rows of `places` places, of which a segment needs `special` for special tokens.
    pub(super) fn whole(places: u64, special: u64) -> Self {
        Self { whole: places.saturating_sub(special).max(1), ..Self::default() }
    }

    /// As [`Lengths::whole`], but every other chunk is divided into short segments, if a row has room for
    /// two.
    pub(super) fn with_short_segments(places: u64, special: u64) -> Self {
        let whole = Self::whole(places, special);
        let segments = places / SHORT_PLACES;
        if segments < 2 {
            return whole;
        }
        let short = places - segments * special;
        Self { short, segment: short.div_ceil(segments), ..whole }
    }

    /// Number of chunks in a document of `document_tokens`, and the tokens in them.
    fn count(&self, document_tokens: u64) -> (u64, u64) {
        let pair_tokens = self.whole + self.short;
        let pairs = document_tokens / pair_tokens;
        let chunks = pairs * self.chunks_of_pair();
        let tokens = pairs * pair_tokens;
        if document_tokens - tokens >= self.whole {
            (chunks + 1, tokens + self.whole)
        } else {
            (chunks, tokens)
        }
    }

    /// Number of tokens of a document of `document_tokens` that are in chunks.
    pub(super) fn in_chunks(&self, document_tokens: u64) -> u64 {
        self.count(document_tokens).1
    }

    /// Chunk `number` of a document: the tokens before it, its own, and the most tokens of one of its
    /// segments.
    fn chunk(&self, number: u64) -> (u64, u64, u64) {
        let before = number / self.chunks_of_pair() * (self.whole + self.short);
        if number.is_multiple_of(self.chunks_of_pair()) {
            (before, self.whole, self.whole)
        } else {
            (before + self.whole, self.short, self.segment)
        }
    }

    /// Number of chunks after which lengths repeat.
    fn chunks_of_pair(&self) -> u64 {
        if self.short == 0 { 1 } else { 2 }
    }
}

/// The chunks of some documents; `P` is a place in the shards.
#[derive(Debug)]
pub(super) struct ChunkIndex<P> {
    lengths: Lengths,
    shards: Vec<ShardChunks<P>>,
    len: u64,
    /// Tokens in all chunks.
    tokens: u64,
}

/// The chunks of the documents of one shard, of which at least one has a chunk.
#[derive(Debug)]
struct ShardChunks<P> {
    /// Number of their first chunk.
    first_chunk: u64,
    /// Tokens of the chunks before that one.
    tokens_before: u64,
    first_document: u64,
    first_place: P,
    documents: Vec<LongDocument>,
}

/// A document that has chunks. Numbers count from the beginning of the shard.
#[derive(Debug, Clone, Copy)]
struct LongDocument {
    first_chunk: u32,
    document: u32,
    /// Tokens before the document.
    start: u32,
    tokens: u32,
}

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk<P> {
    /// The document of the chunk.
    pub(super) document: u64,
    /// The place of the chunk's document in the shards.
    pub(super) place: P,
    /// Tokens of the whole document.
    pub(super) document_tokens: u64,
    /// Tokens of the document before the chunk.
    pub(super) from: u64,
    /// Tokens of the chunk.
    pub(super) count: u64,
    /// Most tokens of a segment.
    pub(super) segment_tokens: u64,
}

impl<P: Copy> ChunkIndex<P> {
    /// Cuts the documents in `ranges` into chunks of `lengths`. Each range is within one of
    /// [`Documents::runs`].
    pub(super) fn new<D: Documents<Place = P>>(
        documents: &D,
        ranges: &[Range<u64>],
        lengths: Lengths,
    ) -> Result<Self> {
        let mut index = Self { lengths, shards: Vec::new(), len: 0, tokens: 0 };
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let places = documents.locate_run(range.start, range.end - range.start)?;
            let mut shard = ShardChunks {
                first_chunk: index.len,
                tokens_before: index.tokens,
                first_document: range.start,
                first_place: places[0].0,
                documents: Vec::new(),
            };
            let mut start = 0;
            for (document, (_, document_tokens)) in (0..).zip(places) {
                let (chunks, tokens) = index.lengths.count(document_tokens);
                if chunks > 0 {
                    shard.documents.push(LongDocument {
                        first_chunk: narrow(index.len - shard.first_chunk)?,
                        document,
                        start: narrow(start)?,
                        tokens: narrow(document_tokens)?,
                    });
                }
                start += document_tokens;
                index.len += chunks;
                index.tokens += tokens;
            }
            if !shard.documents.is_empty() {
                shard.documents.shrink_to_fit();
                index.shards.push(shard);
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
        let next = self.shards.partition_point(|shard| shard.first_document < document);
        self.shards
            .get(next)
            .map_or((self.len, self.tokens), |shard| (shard.first_chunk, shard.tokens_before))
    }

    /// Chunk `number`, which must be below [`len`](Self::len).
    pub(super) fn find<D: Documents<Place = P>>(&self, number: u64) -> Chunk<P> {
        let shard = &self.shards[self.shards.partition_point(|shard| shard.first_chunk <= number) - 1];
        let in_shard = number - shard.first_chunk;
        let next = shard.documents.partition_point(|document| u64::from(document.first_chunk) <= in_shard);
        let LongDocument { first_chunk, document, start, tokens } = shard.documents[next - 1];
        let document_tokens = u64::from(tokens);
        let (from, count, segment_tokens) = self.lengths.chunk(in_shard - u64::from(first_chunk));
        Chunk {
            document: shard.first_document + u64::from(document),
            place: D::place_after(shard.first_place, u64::from(start), document_tokens),
            document_tokens,
            from,
            count,
            segment_tokens,
        }
    }
}

/// A number of tokens or chunks of a shard, as the index stores it.
fn narrow(count: u64) -> Result<u32> {
    Ok(u32::try_from(count).map_err(|_| {
        Problem::new(format!(
            "a shard has a document that ends after {count} tokens; rows are shuffled up to {}",
            u32::MAX
        ))
        .hint("set `data.shuffle: documents`, or divide the longest document")
    })?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shards::{Place, ShardSet};

    #[test]
    fn every_chunk_is_found_and_short_documents_take_no_memory() {
        let lengths: Vec<usize> =
            (0..2000).map(|n| if n % 700 == 3 { 1000 + n } else { n % 10 }).chain([20, 30]).collect();
        let documents: Vec<Vec<u32>> = lengths.iter().map(|length| vec![7; *length]).collect();
        let sources: [(&str, &[Vec<u32>]); 2] = [("a", &documents[..2000]), ("b", &documents[2000..])];
        let set = Arc::new(ShardSet::in_memory_sources(&sources, 10));
        let index = ChunkIndex::new(&set, &set.ranges(), Lengths::whole(12, 2)).unwrap();
        let entries: Vec<usize> = index.shards.iter().map(|shard| shard.documents.len()).collect();
        assert_eq!((entries, index.before(0).0, index.before(2000).0), (vec![3, 2], 0, index.len() - 5));
        let mut expected = Vec::new();
        for (document, length) in (0..).zip(&lengths) {
            expected.extend((0..length / 10).map(|chunk| (document, 10 * chunk as u64)));
        }
        let found: Vec<Chunk<Place>> =
            (0..index.len()).map(|number| index.find::<Arc<ShardSet>>(number)).collect();
        let numbers: Vec<(u64, u64)> = found.iter().map(|chunk| (chunk.document, chunk.from)).collect();
        assert_eq!(numbers, expected);
        for Chunk { document, place, document_tokens, .. } in found {
            assert_eq!((place, document_tokens), set.locate(document).unwrap());
        }
    }

    #[test]
    fn chunks_of_any_document_follow_each_other_and_fill_their_rows() {
        let lengths = Lengths::with_short_segments(128, 2);
        for document_tokens in [0, 1, 125, 126, 127, 245, 246, 247, 371, 372, 10_000] {
            let (chunks, in_chunks) = lengths.count(document_tokens);
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
            Lengths::whole(63, 2),
            "a row has no room for two segments"
        );
        let odd = Lengths::with_short_segments(100, 2);
        assert_eq!((odd.chunk(1), odd.count(98 + 94)), ((98, 94, 32), (2, 192)));
    }
}
