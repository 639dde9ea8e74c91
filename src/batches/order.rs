//! In which order documents come: a function of seed and epoch alone.

use crate::rng::Permutation;
use crate::rng::Purpose;
use crate::rng::Stream;

/// An order of documents for each epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A fresh permutation each epoch.
    Shuffled {
        /// Seed of the run.
        seed: u64,
    },
    /// As they lie in the shards.
    Fixed,
}

impl Order {
    /// The document that comes at place `index` of `epoch`; `index` must be below `documents`.
    pub fn document(self, epoch: u64, index: u64, documents: u64) -> u64 {
        match self {
            Self::Shuffled { seed } => Permutation::new(Stream::new(seed, Purpose::Order, epoch), documents).at(index),
            Self::Fixed => index,
        }
    }
}
