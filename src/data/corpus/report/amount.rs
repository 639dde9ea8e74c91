//! Number of documents and of their bytes.

use serde::{Deserialize, Serialize};

/// Number of documents and of their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Number of documents.
    pub documents: u64,
    /// Bytes of these documents.
    pub bytes: u64,
}

impl Amount {
    /// Counts one more document.
    pub(super) fn add(&mut self, bytes: u64) {
        self.documents += 1;
        self.bytes += bytes;
    }

    /// Adds `other`. Sums saturate, since damaged parts may claim any number.
    pub(in crate::corpus) fn merge(&mut self, other: Self) {
        self.documents = self.documents.saturating_add(other.documents);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Returns the difference to `other`, at least 0.
    pub(in crate::corpus) fn without(self, other: Self) -> Self {
        Self {
            documents: self.documents.saturating_sub(other.documents),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Returns the sum of all `amounts`.
    pub(super) fn sum(amounts: impl IntoIterator<Item = Self>) -> Self {
        amounts.into_iter().fold(Self::default(), |mut sum, amount| {
            sum.merge(amount);
            sum
        })
    }
}
