//! Which documents repeat others, in two bits a document and a file of who repeats whom.

use std::cmp::Ordering;
use std::path::Path;

use anyhow::Result;

use crate::corpus::dedup::sketch_file::u64_at;
use crate::fs;

/// One bit for each document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// As they were given as bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Self { words }
    }

    /// For another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(super) fn new(len: u64) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize] }
    }

    /// `false` past the end.
    pub fn get(&self, index: u64) -> bool {
        self.words.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Sets what is set in `other`, too, which is as long or has no words.
    pub(super) fn merge(&mut self, other: &Self) {
        // One of them may have no words, where nothing of its kind was looked for.
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
    }

    pub(super) fn set(&mut self, index: u64) {
        let word = &mut self.words[(index / 64) as usize];
        *word |= 1 << (index % 64);
    }
}

/// The reason to leave out a document whose text was there before.
pub const EXACT_DUPLICATE: &str = "exact_duplicate";

/// The reason to leave out a document that is nearly like an earlier one.
pub const NEAR_DUPLICATE: &str = "near_duplicate";

/// Which documents repeat others.
#[derive(Debug)]
pub struct Duplicates {
    /// Equal texts are near duplicates to those who asked for these only.
    pub(super) names_exact: bool,
    pub(super) exact: Bitmap,
    pub(super) near: Bitmap,
    pub(super) originals: Option<Originals>,
}

impl Duplicates {
    /// Why the document at this position is left out: `exact_duplicate`, `near_duplicate`; `None` keeps it.
    pub fn of(&self, index: u64) -> Option<&'static str> {
        match (self.exact.get(index), self.near.get(index)) {
            (true, _) if self.names_exact => Some(EXACT_DUPLICATE),
            (false, false) => None,
            _ => Some(NEAR_DUPLICATE),
        }
    }

    /// All documents that are left out.
    pub fn into_left_out(mut self) -> Bitmap {
        self.exact.merge(&self.near);
        self.exact
    }

    /// The document that this one repeats, which is one that stays; `None` for a document that stays itself.
    pub fn original(&self, index: u64) -> Result<Option<u64>> {
        let Some(originals) = &self.originals else { return Ok(None) };
        if !self.exact.get(index) {
            return if self.near.get(index) { originals.of(index) } else { Ok(None) };
        }
        match originals.of(index)? {
            // The first of several equal texts may be nearly like another.
            Some(first) if self.near.get(first) => originals.of(first),
            first => Ok(first),
        }
    }
}

const PAIR_BYTES: usize = 16;
/// 512 pairs, which one read fetches.
const BLOCK_BYTES: usize = 512 * PAIR_BYTES;

/// Pairs of a document and the one that it repeats, ordered by the first, in a nameless file.
#[derive(Debug)]
pub(super) struct Originals {
    file: fs::ScratchFile,
    /// The first document of each whole block of the file.
    firsts: Vec<u64>,
    /// The block that is not full yet.
    tail: Vec<u8>,
}

impl Originals {
    pub(super) fn new(scratch: &Path) -> Result<Self> {
        Ok(Self { file: fs::ScratchFile::create(scratch)?, firsts: Vec::new(), tail: Vec::new() })
    }

    /// Adds a pair; documents must come in ascending order.
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

    /// The document that `document` repeats.
    pub(super) fn of(&self, document: u64) -> Result<Option<u64>> {
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
    let (mut low, mut high) = (0, block.len() / PAIR_BYTES);
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
                assert_eq!(originals.of(3 * i + 5).unwrap(), Some(i), "while it is written");
            }
            for document in 0..3 * count + 10 {
                let expected = (document >= 5 && document % 3 == 2 && document < 3 * count + 5)
                    .then(|| (document - 5) / 3);
                assert_eq!(originals.of(document).unwrap(), expected, "{document} of {count}");
            }
        }
    }
}
