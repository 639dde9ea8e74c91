//! The order of documents and how often each occurs: a function of seed and epoch only, in O(1) memory.
//!
//! It knows only the numbers of documents. `mixes.rs` has the order if the weights of sources change during a
//! run, `windows.rs` the order that stays within a few shards at a time.

mod mixes;
mod windows;

pub(super) use windows::Windows;

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;

use crate::shards::SourceRange;
use base::error::Problem;
use base::rng::{Permutation, Purpose, Stream};

/// Ids of streams within a source are above those of the epochs.
const WITHIN_SOURCE: u64 = 1 << 55;

/// Bits of a stream's id that count the passes over a source.
const PASS_BITS: u32 = 32;

/// An order of documents for each epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// A new permutation each epoch.
    Shuffled {
        /// Seed of the run.
        seed: u64,
    },
    /// A new permutation each epoch, in which a source's documents may occur more or less often than once.
    Weighted {
        /// Seed of the run.
        seed: u64,
        /// How often an epoch takes each document of a source, in the order of the sources.
        weights: Arc<[f64]>,
    },
    /// A new permutation each epoch of the documents of `size` shards at a time.
    Windowed {
        /// Seed of the run.
        seed: u64,
        /// Number of shards of a window, at least 1.
        size: usize,
        /// The documents of each shard.
        shards: Arc<[Range<u64>]>,
    },
    /// The order in the shards.
    Fixed,
}

impl Order {
    /// The order of the documents of `sources`; an error if there is not one weight per source, or no weight
    /// is positive.
    pub fn sequence(&self, sources: &[SourceRange]) -> Result<Sequence> {
        let sequence = self.ordered(sources, Purpose::Order)?;
        if sequence.places == 0 && sources.iter().any(|source| source.documents > 0) {
            let message = "only sources without a document for training have a weight above 0";
            return Err(Problem::new(message).at("data.sources").into());
        }
        Ok(sequence)
    }

    /// The order of the chunks of `sources`, each as often as the documents of its source. There may be no
    /// chunks.
    pub(super) fn chunks(&self, sources: &[SourceRange]) -> Result<Sequence> {
        self.ordered(sources, Purpose::Chunks)
    }

    /// Returns true if the order is drawn from a seed.
    pub(super) fn is_shuffled(&self) -> bool {
        !matches!(self, Self::Fixed)
    }

    fn ordered(&self, sources: &[SourceRange], purpose: Purpose) -> Result<Sequence> {
        let (seed, weights) = match self {
            Self::Fixed => (None, None),
            Self::Shuffled { seed } | Self::Windowed { seed, .. } => (Some(*seed), None),
            Self::Weighted { seed, weights } => (Some(*seed), Some(weights)),
        };
        if weights.is_some_and(|weights| weights.len() != sources.len()) {
            let names: Vec<&str> = sources.iter().map(|s| s.name.as_str()).collect();
            return Err(Problem::new(format!(
                "{} weights for {} sources",
                weights.map_or(0, |w| w.len()),
                sources.len()
            ))
            .at("data.sources")
            .hint(format!("the shards were made from the sources {}", names.join(", ")))
            .into());
        }
        let windows = match self {
            Self::Windowed { seed, size, shards } => Some(Windows::new(*seed, *size, shards)),
            _ => None,
        };
        let mut sequence = Sequence {
            seed,
            purpose,
            windows,
            sources: sources.len(),
            shares: Vec::with_capacity(sources.len()),
            places: 0,
            tokens: 0.0,
            tokens_max: 0,
        };
        for (number, source) in sources.iter().enumerate() {
            sequence.push(number as u64, source, weights.map_or(1.0, |weights| weights[number]));
        }
        Ok(sequence)
    }
}

/// The part of an epoch that belongs to one source.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    source: u64,
    first_place: u64,
    /// Number of places in an epoch (V); 0 if the source is left out.
    places: u64,
    first_document: u64,
    /// Number of documents (n).
    documents: u64,
}

/// The order of certain documents: each of the [`places`](Self::places) of an epoch has a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence {
    seed: Option<u64>,
    purpose: Purpose,
    windows: Option<Windows>,
    /// Number of sources, including those without documents.
    sources: usize,
    shares: Vec<Share>,
    places: u64,
    tokens: f64,
    tokens_max: u64,
}

impl Sequence {
    fn push(&mut self, number: u64, source: &SourceRange, weight: f64) {
        let n = source.documents;
        if n == 0 {
            return;
        }
        let least = u64::from(weight > 0.0);
        let places = ((weight * n as f64).round() as u64).max(least);
        let first_place = self.places;
        let first_document = source.first_document;
        self.shares.push(Share { source: number, first_place, places, first_document, documents: n });
        self.places += places;
        self.tokens += source.tokens as f64 * (places as f64 / n as f64);
        // Unless an epoch is a number of whole passes, it may begin within one and end within another.
        self.tokens_max += source.tokens * (places.div_ceil(n) + u64::from(!places.is_multiple_of(n)));
    }

    /// Number of documents of an epoch; a document that occurs twice counts twice.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// Number of tokens of an epoch: exact if every source has weight 1, otherwise the mean over epochs.
    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Upper bound on the number of tokens of an epoch.
    pub fn tokens_max(&self) -> u64 {
        self.tokens_max
    }

    /// The seed of a shuffled order.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The document at place `index` of `epoch`; `index` must be below [`places`](Self::places).
    ///
    /// The places of a source are numbered through all epochs. Each group of n consecutive places (n
    /// documents) is a permutation of the documents: so the counts of two documents differ by at most one.
    pub fn document(&self, epoch: u64, index: u64) -> u64 {
        if let Some(windows) = &self.windows {
            return windows.document(epoch, index);
        }
        let place = self.place(epoch, index);
        self.share(place).document(self.seeded(), epoch, place)
    }

    /// The windows of an order, if it has windows.
    pub(super) fn windows(&self) -> Option<&Windows> {
        self.windows.as_ref()
    }

    /// A document drawn with two numbers of `stream`, at `index` and after it. The probability of a source is
    /// proportional to its places in an epoch; `but` is returned only if its source has no other document.
    pub(super) fn drawn(&self, stream: &Stream, index: u64, but: u64) -> u64 {
        let share = self.share(stream.below(index, self.places));
        let number = stream.below(index + 1, share.documents);
        let is_taken = share.first_document + number == but;
        share.first_document + if is_taken { (number + 1) % share.documents } else { number }
    }

    /// The random stream of a shuffled order.
    fn seeded(&self) -> Option<Seeded> {
        self.seed.map(|seed| Seeded { seed, purpose: self.purpose })
    }

    fn place(&self, epoch: u64, index: u64) -> u64 {
        self.seeded().map_or(index, |seeded| Permutation::new(seeded.stream(epoch), self.places).at(index))
    }

    fn share(&self, place: u64) -> &Share {
        let next = self.shares.partition_point(|share| share.first_place <= place);
        &self.shares[next - 1]
    }
}

/// The random stream of a shuffled order.
#[derive(Debug, Clone, Copy)]
struct Seeded {
    seed: u64,
    purpose: Purpose,
}

impl Seeded {
    fn stream(self, id: u64) -> Stream {
        Stream::new(self.seed, self.purpose, id)
    }
}

impl Share {
    /// The document at `place` of `epoch`.
    fn document(&self, seeded: Option<Seeded>, epoch: u64, place: u64) -> u64 {
        let offset = place - self.first_place;
        match seeded {
            // Each epoch is one pass, already shuffled by the permutation of the places.
            Some(seeded) if self.places != self.documents => {
                self.numbered(seeded, u128::from(epoch) * u128::from(self.places) + u128::from(offset))
            }
            _ => self.first_document + offset,
        }
    }

    /// Document `number` of the endless order of this source, which has a new permutation for each pass.
    fn numbered(&self, seeded: Seeded, number: u128) -> u64 {
        let pass = (number / u128::from(self.documents)) as u64;
        let place = (number % u128::from(self.documents)) as u64;
        let id = WITHIN_SOURCE | self.source << PASS_BITS | (pass & ((1 << PASS_BITS) - 1));
        self.first_document + Permutation::new(seeded.stream(id), self.documents).at(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(documents: &[u64]) -> Vec<SourceRange> {
        let mut first_document = 0;
        let sources = documents.iter().enumerate().map(|(number, &documents)| {
            let source =
                SourceRange { name: format!("s{number}"), first_document, documents, tokens: 10 * documents };
            first_document += documents;
            source
        });
        sources.collect()
    }

    fn weighted(documents: &[u64], weights: &[f64]) -> Sequence {
        Order::Weighted { seed: 5, weights: weights.into() }.sequence(&sources(documents)).unwrap()
    }

    fn epoch(sequence: &Sequence, epoch: u64) -> Vec<u64> {
        (0..sequence.places()).map(|index| sequence.document(epoch, index)).collect()
    }

    #[test]
    fn weight_one_is_the_plain_permutation_of_all_documents() {
        let even = weighted(&[30, 0, 12], &[1.0, 1.0, 1.0]);
        let plain = Order::Shuffled { seed: 5 }.sequence(&sources(&[42])).unwrap();
        for e in 0..4 {
            assert_eq!(epoch(&even, e), epoch(&plain, e));
            let permutation = Permutation::new(Stream::new(5, Purpose::Order, e), 42);
            assert_eq!(epoch(&even, e), (0..42).map(|index| permutation.at(index)).collect::<Vec<_>>());
        }
        assert_eq!((even.tokens(), even.tokens_max()), (420.0, 420));
        assert_eq!(epoch(&Order::Fixed.sequence(&sources(&[3, 2])).unwrap(), 7), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn over_the_epochs_every_document_of_a_source_comes_equally_often() {
        let documents = [7u64, 5, 1, 100];
        let weights = [0.5, 2.4, 0.01, 1.0];
        let sequence = weighted(&documents, &weights);
        // 0.5 x 7 rounds to 4 places, 2.4 x 5 is 12, the one document of the third source always occurs.
        assert_eq!(sequence.places(), 4 + 12 + 1 + 100);
        assert_eq!(sequence.tokens_max(), 2 * 70 + 4 * 50 + 10 + 1000);
        let mut counts = vec![0u32; 113];
        for e in 0..9 {
            for document in epoch(&sequence, e) {
                counts[document as usize] += 1;
            }
            for source in sources(&documents) {
                let range =
                    source.first_document as usize..(source.first_document + source.documents) as usize;
                let least = counts[range.clone()].iter().min().unwrap();
                let most = counts[range].iter().max().unwrap();
                assert!(most - least <= 1, "epoch {e}: {counts:?}");
            }
        }
        let totals = [0..7, 7..12, 12..13, 13..113].map(|range| counts[range].iter().sum::<u32>());
        assert_eq!(totals, [9 * 4, 9 * 12, 9, 900]);
    }

    #[test]
    fn half_a_source_is_another_half_the_next_epoch() {
        let sequence = weighted(&[40], &[0.5]);
        let mut first = epoch(&sequence, 0);
        let second = epoch(&sequence, 1);
        assert_eq!((first.len(), second.len()), (20, 20));
        first.extend(second);
        first.sort_unstable();
        assert_eq!(first, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn an_epoch_within_two_passes_may_have_a_document_twice() {
        let sequence = weighted(&[4], &[0.75]);
        let mut different = (0..400).map(|e| {
            let documents: std::collections::BTreeSet<u64> = epoch(&sequence, e).into_iter().collect();
            documents.len()
        });
        assert!(different.any(|documents| documents < 3));
        // The document that occurs twice may be the longest one.
        assert_eq!(sequence.tokens_max(), 2 * 40);
    }

    #[test]
    fn weights_of_other_sources_are_refused() {
        let refused = Order::Weighted { seed: 1, weights: [1.0].into() }.sequence(&sources(&[2, 3]));
        assert!(refused.unwrap_err().to_string().contains("1 weights for 2 sources"));
        let empty = Order::Weighted { seed: 1, weights: [1.0, 0.0].into() }.sequence(&sources(&[0, 3]));
        assert!(empty.unwrap_err().to_string().contains("only sources without a document"));
    }
}
