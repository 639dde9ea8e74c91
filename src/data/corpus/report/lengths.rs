//! Histogram of lengths in powers of two.

use serde::{Deserialize, Serialize};

/// Numbers of documents by length: element 0 counts those of length 0, element `k` those of 2^(k-1) to 2^k -
/// 1.
///
/// At most 65 elements; the missing ones are zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lengths(pub Vec<u64>);

impl Lengths {
    /// Counts one more document of this length.
    pub fn add(&mut self, length: u64) {
        let bucket = (u64::BITS - length.leading_zeros()) as usize;
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    /// Adds the counts of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the smallest length that is counted in `bucket`.
    pub fn least(bucket: usize) -> u64 {
        bucket.checked_sub(1).map_or(0, |power| 1 << power.min(63))
    }
}
