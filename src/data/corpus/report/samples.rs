//! A few examples for each reason, spread over the whole corpus: those whose location has the smallest hash.
//!
//! The choice depends on the documents alone, so that parts can be counted separately and merged in any
//! order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::corpus::{Location, Rejection};

/// Number of examples for each reason.
const SAMPLES: usize = 20;

/// Most characters of an excerpt, and of a detail.
const EXCERPT_CHARS: usize = 300;

/// A document that was left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Path of the file.
    pub file: String,
    /// Line of the decompressed text, or row, from 1.
    pub line: u64,
    /// Measured value that led to the rejection; may be empty.
    pub detail: String,
    /// Its beginning, at most 300 characters.
    pub excerpt: String,
}

/// Examples by reason, at most 20 each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples(pub BTreeMap<String, Vec<Sample>>);

impl Samples {
    /// Adds the document if the hash of its reason and location is among the smallest of its reason.
    pub(super) fn add(&mut self, rejection: &Rejection, location: &Location, excerpt: &str) {
        let reason = rejection.reason;
        let file = location.path.to_string_lossy();
        let samples = self.0.get_mut(reason);
        let is_full = samples.as_ref().is_some_and(|samples| samples.len() == SAMPLES);
        let last = samples.as_ref().and_then(|samples| samples.last());
        // Most documents of a large corpus end here, before anything is copied.
        if is_full && last.is_some_and(|last| hash_of(reason, &file, location.line) > last.hash(reason)) {
            return;
        }
        let detail = beginning(&rejection.detail).to_string();
        let sample = Sample {
            file: file.into_owned(),
            line: location.line,
            detail,
            excerpt: beginning(excerpt).to_string(),
        };
        match samples {
            Some(samples) => insert(samples, reason, sample),
            None => drop(self.0.insert(reason.to_string(), vec![sample])),
        }
    }

    /// Adds the samples of `other`, and keeps those with the smallest hashes.
    pub(super) fn merge(&mut self, other: Self) {
        for (reason, samples) in other.0 {
            let merged = self.0.entry(reason.clone()).or_default();
            for sample in samples {
                insert(merged, &reason, sample);
            }
        }
    }
}

impl Sample {
    fn hash(&self, reason: &str) -> u64 {
        hash_of(reason, &self.file, self.line)
    }
}

/// Inserts a sample so that `samples` is sorted by hash and has at most [`SAMPLES`] elements. Pieces of one
/// line have the same hash; these are sorted by the other fields.
fn insert(samples: &mut Vec<Sample>, reason: &str, sample: Sample) {
    let hash = sample.hash(reason);
    let place = samples.partition_point(|other| (other.hash(reason), other) <= (hash, &sample));
    samples.insert(place, sample);
    samples.truncate(SAMPLES);
}

fn hash_of(reason: &str, file: &str, line: u64) -> u64 {
    let mut hash = Xxh3::new();
    for part in [reason.as_bytes(), b"\0", file.as_bytes(), &line.to_le_bytes()] {
        hash.update(part);
    }
    hash.digest()
}

fn beginning(text: &str) -> &str {
    let end = text.char_indices().nth(EXCERPT_CHARS).map_or(text.len(), |(at, _)| at);
    &text[..end]
}
