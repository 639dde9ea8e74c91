//! Duplicate documents: two bits per document, and a file of which document each duplicate repeats.

use std::cmp::Ordering;
use std::path::Path;

use anyhow::Result;

use crate::corpus::dedup::sketch_file::u64_at;
use base::fs;

/// One bit for each document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// Reads the output of [`Self::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Self { words }
    }

    /// Serializes the bits for another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(super) fn new(len: u64) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize] }
    }

    /// Returns the bit; `false` past the end.
    pub fn get(&self, index: u64) -> bool {
        self.words.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Sets the bits that are set in `other`, which has the same length or is empty.
    pub(super) fn merge(&mut self, other: &Self) {
        // One of them is empty if its kind of duplicates was not looked for.
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
    }

    pub(super) fn set(&mut self, index: u64) {
        let word = &mut self.words[(index / 64) as usize];
        *word |= 1 << (index % 64);
    }
}

/// Name of the reason to leave out a document with the same text as an earlier one.
pub const EXACT_DUPLICATE: &str = "exact_duplicate";

/// Name of the reason to leave out a document that is nearly the same as an earlier one.
pub const NEAR_DUPLICATE: &str = "near_duplicate";

/// Documents that repeat others.
#[derive(Debug)]
pub struct Duplicates {
    /// False if only near duplicates were asked for: then equal texts are reported as near duplicates.
    pub(super) names_exact: bool,
    pub(super) exact: Bitmap,
    pub(super) near: Bitmap,
    pub(super) originals: Option<Originals>,
}

impl Duplicates {
    /// Returns the reason to leave a document out: `exact_duplicate` or `near_duplicate`; `None` keeps it.
    pub fn reason(&self, index: u64) -> Option<&'static str> {
        match (self.exact.get(index), self.near.get(index)) {
            (true, _) if self.names_exact => Some(EXACT_DUPLICATE),
            (false, false) => None,
            _ => Some(NEAR_DUPLICATE),
        }
    }

    /// Returns all documents that are left out.
    pub fn into_left_out(mut self) -> Bitmap {
        self.exact.merge(&self.near);
        self.exact
    }

    /// Returns the kept document that this one repeats; `None` if this one is kept.
    pub fn original(&self, index: u64) -> Result<Option<u64>> {
        let Some(originals) = &self.originals else { return Ok(None) };
        if !self.exact.get(index) {
            return if self.near.get(index) { originals.get(index) } else { Ok(None) };
        }
        match originals.get(index)? {
            // The first of several equal texts may itself be a near duplicate.
            Some(first) if self.near.get(first) => originals.get(first),
            first => Ok(first),
        }
    }
}

const PAIR_BYTES: usize = 16;
/// Bytes that are read at once: 512 pairs.
const BLOCK_BYTES: usize = 512 * PAIR_BYTES;

/// Pairs of (duplicate, repeated document), ordered by the duplicate, in an unnamed temporary file.
#[derive(Debug)]
pub(super) struct Originals {
    file: fs::ScratchFile,
    /// The first duplicate of each whole block of the file.
    firsts: Vec<u64>,
    /// Pairs of the last block, which is not full yet.
    tail: Vec<u8>,
}

impl Originals {
    pub(super) fn new(scratch: &Path) -> Result<Self> {
        Ok(Self { file: fs::ScratchFile::create(scratch)?, firsts: Vec::new(), tail: Vec::new() })
    }

    /// Adds a pair; duplicates must come in ascending order.
    pub(super) fn push(&mut self, document: u64, original: u64) -> Result<()> {
        self.tail.extend(document.to_le_bytes());
        self.tail.extend(original.to_le_bytes());
        if self.tail.len() == BLOCK_BYTES {
            self.firsts.push(u64_at(&self.tail, 0));
            self.file.append(&self.tail)?;
            self.tail.clear();
        }
        Ok(())
    }

    /// Returns the document that `document` repeats.
    pub(super) fn get(&self, document: u64) -> Result<Option<u64>> {
        if !self.tail.is_empty() && document >= u64_at(&self.tail, 0) {
            return Ok(find(&self.tail, document));
        }
        let Some(block) = self.firsts.partition_point(|first| *first <= document).checked_sub(1) else {
            return Ok(None);
        };
        let mut bytes = [0; BLOCK_BYTES];
        self.file.read_at(&mut bytes, (block * BLOCK_BYTES) as u64)?;
        Ok(find(&bytes, document))
    }
}

fn find(block: &[u8], document: u64) -> Option<u64> {
    let mut low = 0;
    let mut high = block.len() / PAIR_BYTES;
    while low < high {
        let middle = low.midpoint(high);
        let pair = &block[middle * PAIR_BYTES..];
        match u64_at(pair, 0).cmp(&document) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Some(u64_at(pair, 8)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_found_in_full_blocks_and_in_the_last() {
        let folder = tempfile::tempdir().unwrap();
        for count in [0u64, 1, 511, 512, 513, 1024, 2000] {
            let mut originals = Originals::new(folder.path()).unwrap();
            for i in 0..count {
                originals.push(3 * i + 5, i).unwrap();
                assert_eq!(originals.get(3 * i + 5).unwrap(), Some(i), "while it is written");
            }
            for document in 0..3 * count + 10 {
                let expected = (document >= 5 && document % 3 == 2 && document < 3 * count + 5)
                    .then(|| (document - 5) / 3);
                assert_eq!(originals.get(document).unwrap(), expected, "{document} of {count}");
            }
        }
    }
}
