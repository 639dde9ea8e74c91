//! Computes the sketch of a text: a hash that equal texts share, and minima by which similar texts are found.
//!
//! The same text gives the same sketch in any order, on any thread and on any machine.

use std::cell::RefCell;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64_with_seed};

use crate::corpus::dedup::minhash::{Banding, LANES, Permutations, byte_of};
use crate::corpus::dedup::shingles::for_each_shingle;
use config::DeduplicationConfig;

/// Bytes of the hash at the start of each record.
pub(super) const HASH_BYTES: usize = 16;
/// Bytes of one band's key. The keys come after the hash; the minima, a byte each, end the record.
pub(super) const KEY_BYTES: usize = 8;

/// Parameters of sketches. Two files of sketches can be compared only if their parameters are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Number of minima; 0 if only equal texts are looked for.
    pub(super) permutations: usize,
    pub(super) rows: usize,
    pub(super) bands: usize,
    pub(super) shingle_words: usize,
}

impl Parameters {
    /// Returns the parameters; `None` if the configuration looks for no duplicates.
    pub(super) fn from_config(config: &DeduplicationConfig) -> Option<Self> {
        let Some(threshold) = config.near_threshold else {
            return config.exact.then_some(Self { permutations: 0, rows: 0, bands: 0, shingle_words: 0 });
        };
        let permutations = config.num_permutations.max(1).next_multiple_of(LANES);
        let Banding { bands, rows } = Banding::for_threshold(threshold, permutations);
        Some(Self { permutations, rows, bands, shingle_words: config.shingle_words })
    }

    pub(super) fn record_bytes(&self) -> usize {
        self.minima_start() + self.permutations
    }

    /// Returns the offset of the minima in a record.
    pub(super) fn minima_start(&self) -> usize {
        HASH_BYTES + self.bands * KEY_BYTES
    }
}

/// Makes sketches; shared by all threads.
#[derive(Debug, Clone)]
pub struct Sketcher {
    pub(super) parameters: Parameters,
    permutations: Permutations,
}

/// Sketch of one document: 16 bytes of hash, and for near duplicates about two bytes per permutation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    pub(super) record: Box<[u8]>,
}

impl Sketcher {
    /// Returns a sketcher; `None` if the configuration looks for no duplicates.
    pub fn new(config: &DeduplicationConfig) -> Option<Self> {
        let parameters = Parameters::from_config(config)?;
        Some(Self { parameters, permutations: Permutations::new(parameters.permutations) })
    }

    /// Returns the bytes on disk of the sketch of one document.
    pub fn record_bytes(&self) -> usize {
        self.parameters.record_bytes()
    }

    /// Returns about how many bytes of scratch space [`super::resolve`] needs per document if few documents
    /// are similar.
    pub fn scratch_bytes(&self) -> usize {
        // The sorted hashes are deleted before the keys of the bands are sorted.
        (HASH_BYTES + 8).max(self.parameters.bands * (KEY_BYTES + 8))
    }

    /// Computes the sketch of a text.
    pub fn sketch(&self, text: &str) -> Sketch {
        let mut record = Vec::with_capacity(self.record_bytes());
        record.extend(text_hash(text).to_le_bytes());
        if self.parameters.permutations > 0 {
            let minima = self.minima(text);
            let bytes: Vec<u8> = minima.iter().flat_map(|minimum| minimum.to_le_bytes()).collect();
            // The band's number is the seed, so that equal rows in different bands do not match.
            for (band, rows) in (0..self.parameters.bands).zip(bytes.chunks_exact(4 * self.parameters.rows)) {
                record.extend(xxh3_64_with_seed(rows, band as u64).to_le_bytes());
            }
            record.extend(minima.into_iter().map(byte_of));
        }
        Sketch { record: record.into() }
    }

    fn minima(&self, text: &str) -> Vec<u32> {
        let mut minima = self.permutations.start();
        let mut batch = [0; 512];
        let mut filled = 0;
        for_each_shingle(text, self.parameters.shingle_words, |shingle| {
            batch[filled] = shingle;
            filled += 1;
            if filled == batch.len() {
                self.permutations.update(&mut minima, &batch);
                filled = 0;
            }
        });
        self.permutations.update(&mut minima, &batch[..filled]);
        minima.concat()
    }
}

/// Hashes the words of a text, joined by single spaces, to 128 bits: among 10^12 documents, two different
/// ones are taken for equal with a probability below 10^-14. Case and punctuation count.
fn text_hash(text: &str) -> u128 {
    thread_local! {
        // The hasher's state is half a kilobyte, which is slow to set up for a short line.
        static HASHER: RefCell<Xxh3Default> = const { RefCell::new(Xxh3Default::new()) };
    }
    HASHER.with_borrow_mut(|hasher| {
        hasher.reset();
        for (number, word) in text.split_whitespace().enumerate() {
            if number > 0 {
                hasher.update(b" ");
            }
            hasher.update(word.as_bytes());
        }
        hasher.digest128()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketcher(exact: bool, near_threshold: Option<f64>) -> Option<Sketcher> {
        Sketcher::new(&DeduplicationConfig { exact, near_threshold, ..DeduplicationConfig::default() })
    }

    #[test]
    fn a_record_has_only_the_fields_that_are_asked_for() {
        assert!(sketcher(false, None).is_none());
        assert_eq!(sketcher(true, None).unwrap().sketch("a b").record.len(), 16);
        let near = sketcher(false, Some(0.8)).unwrap();
        assert_eq!(near.record_bytes(), 16 + 16 * 8 + 128);
        assert_eq!(near.sketch("a b").record.len(), near.record_bytes());
    }

    #[test]
    fn equal_texts_have_equal_hashes_with_any_spacing() {
        let hash = text_hash("Alku on hankala,\n\n lopussa  kiitos seisoo.");
        assert_eq!(text_hash("Alku on hankala, lopussa kiitos seisoo.\n"), hash);
        for other in [
            "Alku on hankala, lopussa kiitosseisoo.",
            "alku on hankala, lopussa kiitos seisoo.",
            "Alku on hankala lopussa kiitos seisoo.",
            "",
        ] {
            assert_ne!(text_hash(other), hash, "{other}");
        }
    }

    #[test]
    fn a_sketch_is_the_same_in_every_version() {
        let sketch = sketcher(true, Some(0.8))
            .unwrap()
            .sketch("The quick brown fox jumps over the lazy dog. Äiti näki 1 ketun.");
        let hash = xxh3_64_with_seed(&sketch.record, 0);
        // Sketches are stored in files: if this hash changes, the file format needs a new version.
        insta::assert_snapshot!(format!("{hash:016x}"), @"e6cab16a891eb9ab");
    }
}
