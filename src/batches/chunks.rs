//! Chunks of long documents: stretches of as many tokens as fill a row, counted through all documents.
//!
//! A document of n tokens has n / c chunks of c tokens, from its beginning on; what is behind them is its rest.
//! The index holds one entry for each [`MARK_DOCUMENTS`] documents, so that its memory is a small part of
//! the offsets in the shards, and finds a chunk by reading the offsets of so many documents.

use std::ops::Range;

use anyhow::Result;

use crate::batches::documents::Documents;
use crate::error::Problem;

/// Documents that share an entry of the index.
const MARK_DOCUMENTS: u64 = 256;

/// The chunks of some documents.
#[derive(Debug, Default)]
pub(super) struct ChunkIndex {
    /// Tokens of a chunk (c).
    tokens: u64,
    marks: Vec<Mark>,
    len: u64,
}

/// Some documents that follow each other and have chunks.
#[derive(Debug)]
struct Mark {
    /// Number of their first chunk.
    first_chunk: u64,
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
}

impl ChunkIndex {
    /// The chunks of `tokens` tokens, at least 1, of the documents in `ranges`, each of which lies within one
    /// run of `documents`.
    pub(super) fn new<D: Documents>(documents: &D, ranges: &[Range<u64>], tokens: u64) -> Result<Self> {
        let mut index = Self { tokens, ..Self::default() };
        for range in ranges {
            for first_document in range.clone().step_by(MARK_DOCUMENTS as usize) {
                let count = MARK_DOCUMENTS.min(range.end - first_document);
                let places = documents.locate_run(first_document, count)?;
                let chunks: u64 = places.iter().map(|(_, length)| length / tokens).sum();
                if chunks > 0 {
                    index.marks.push(Mark { first_chunk: index.len, first_document, documents: count });
                    index.len += chunks;
                }
            }
        }
        Ok(index)
    }

    /// Tokens of a chunk.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The number of chunks.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Chunks of the documents before `document`, with which a range begins.
    pub(super) fn before(&self, document: u64) -> u64 {
        let next = self.marks.partition_point(|mark| mark.first_document < document);
        self.marks.get(next).map_or(self.len, |mark| mark.first_chunk)
    }

    /// Chunk `number`, which must be below [`len`](Self::len).
    pub(super) fn find<D: Documents>(&self, documents: &D, number: u64) -> Result<Chunk<D::Place>> {
        let next = self.marks.partition_point(|mark| mark.first_chunk <= number);
        let mark = &self.marks[next - 1];
        let mut left = number - mark.first_chunk;
        let places = documents.locate_run(mark.first_document, mark.documents)?;
        for (document, (place, document_tokens)) in (mark.first_document..).zip(places) {
            let chunks = document_tokens / self.tokens;
            if left < chunks {
                return Ok(Chunk { document, place, document_tokens, from: left * self.tokens });
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
        let index = ChunkIndex::new(&set, &set.ranges(), 10).unwrap();
        assert_eq!((index.marks.len(), index.before(0), index.before(2000)), (4, 0, index.len() - 5));
        let mut expected = Vec::new();
        for (document, length) in (0..).zip(&lengths) {
            expected.extend((0..length / 10).map(|chunk| (document, 10 * chunk as u64)));
        }
        let found: Vec<(u64, u64)> = (0..index.len())
            .map(|number| index.find(&set, number).map(|chunk| (chunk.document, chunk.from)).unwrap())
            .collect();
        assert_eq!(found, expected);
    }
}
