//! A count of documents and their bytes.

use serde::Deserialize;
use serde::Serialize;

/// Some documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// How many.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// One more document.
    pub(super) fn add(&mut self, bytes: u64) {
        self.documents += 1;
        self.bytes += bytes;
    }

    /// All documents of `other` too. Damaged parts may claim any number, of which the sum is the largest.
    pub(in crate::corpus) fn merge(&mut self, other: Self) {
        self.documents = self.documents.saturating_add(other.documents);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// What is left without `other`.
    pub(in crate::corpus) fn without(self, other: Self) -> Self {
        Self {
            documents: self.documents.saturating_sub(other.documents),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The sum of all `amounts`.
    pub(super) fn sum(amounts: impl IntoIterator<Item = Self>) -> Self {
        amounts.into_iter().fold(Self::default(), |mut sum, amount| {
            sum.merge(amount);
            sum
        })
    }
}
