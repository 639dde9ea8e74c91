//! Pairs of documents that may be near duplicates, because they share a band.
//!
//! A band that n documents share has n (n - 1) / 2 pairs. Only the pairs with the first few documents and
//! with the previous one are kept, so that boilerplate in a million documents costs millions of pairs, not
//! billions. As a rule, a document that resembles others in its band also resembles the first of them; and
//! `resolve` also compares with the document that the previous one repeats.

use anyhow::Result;

use crate::corpus::dedup::sort::Sorter;

/// Number of first documents of a band with which each later one is paired.
const FIRST: usize = 4;

/// Turns sorted (band, document) records into (later, earlier) pairs.
pub(super) struct Bucket {
    key: Option<u64>,
    first: Vec<u64>,
    before: u64,
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self { key: None, first: Vec::new(), before: 0 }
    }

    /// Adds a record. Bands come in any order, but each in one run, with its documents ascending.
    pub(super) fn push(&mut self, [key, document]: [u64; 2], pairs: &mut Sorter<2>) -> Result<()> {
        if self.key != Some(key) {
            self.key = Some(key);
            self.first.clear();
        }
        for earlier in &self.first {
            pairs.push([document, *earlier])?;
        }
        if self.first.len() < FIRST {
            self.first.push(document);
        } else if self.before != self.first[FIRST - 1] {
            pairs.push([document, self.before])?;
        }
        self.before = document;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_is_paired_with_the_first_few_of_its_band_and_the_previous_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut bucket = Bucket::new();
        let mut pairs = Sorter::new(folder.path(), 1 << 16);
        for record in [[1, 7], [2, 3], [2, 9], [3, 0], [3, 1], [3, 2], [3, 3], [3, 4], [3, 5]] {
            bucket.push(record, &mut pairs).unwrap();
        }
        let mut sorted = pairs.finish(1 << 16).unwrap();
        let found: Vec<[u64; 2]> = std::iter::from_fn(|| sorted.next().unwrap()).collect();
        let expected = [
            [1, 0],
            [2, 0],
            [2, 1],
            [3, 0],
            [3, 1],
            [3, 2],
            [4, 0],
            [4, 1],
            [4, 2],
            [4, 3],
            [5, 0],
            [5, 1],
            [5, 2],
            [5, 3],
            [5, 4],
            [9, 3],
        ];
        assert_eq!(found, expected);
    }
}
