//! Counts of one part of the corpus. Parts are counted separately, stored, and merged.
//!
//! The size is bounded: counters by source, reason, step and language, and a few samples for each reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::corpus::report::{Amount, Lengths, Samples};
use crate::corpus::{Location, Rejection};

/// ISO 639-3 for a language that was not determined.
pub(super) const UNDETERMINED: &str = "und";

/// Counts of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceTally {
    /// Name of the source.
    pub name: String,
    /// Documents read; bytes of decompressed text.
    pub read: Amount,
    /// Documents over the length limit, which were cut.
    pub cut_documents: u64,
    /// Documents with invalid UTF-8 that was replaced, and the number of invalid byte sequences.
    pub replaced: Steps,
    /// Changes by cleaning, by step.
    pub changes: BTreeMap<String, Steps>,
    /// Documents left out, by reason.
    pub dropped: BTreeMap<String, Amount>,
    /// Documents kept; bytes after cleaning.
    pub kept: Amount,
    /// Words (between white space) of the kept documents.
    pub words: u64,
    /// Characters (Unicode scalar values) of the kept documents.
    pub characters: u64,
    /// Kept documents by language (ISO 639-3; `und` if it was not determined).
    pub languages: BTreeMap<String, Amount>,
    /// Lengths in bytes of the kept documents.
    pub lengths_bytes: Lengths,
    /// Lengths in words of the kept documents.
    pub lengths_words: Lengths,
}

/// Counts of one kind of change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// Number of documents that were changed.
    pub documents: u64,
    /// Number of changes in all documents.
    pub count: u64,
}

/// Counts by source, and samples of the documents left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Counts of each source, in the order of the configuration.
    pub sources: Vec<SourceTally>,
    /// Examples by reason.
    pub samples: Samples,
}

impl Tally {
    /// Creates empty counts for these sources.
    pub fn new(source_names: &[String]) -> Self {
        let sources = source_names
            .iter()
            .map(|name| SourceTally { name: name.clone(), ..SourceTally::default() })
            .collect();
        Self { sources, samples: Samples::default() }
    }

    /// Counts a document of `bytes` bytes as read. To be called also for a document that is left out while
    /// reading: then read = dropped + kept.
    pub fn read(&mut self, source: usize, bytes: u64, was_cut: bool, replaced: u32) {
        let source = &mut self.sources[source];
        source.read.add(bytes);
        source.cut_documents += u64::from(was_cut);
        if replaced > 0 {
            source.replaced.add(u64::from(replaced));
        }
    }

    /// Counts the changes of a document by cleaning: [`Judged::changes`](crate::corpus::Judged::changes).
    pub fn changed(&mut self, source: usize, changes: &[(&'static str, u64)]) {
        for &(step, count) in changes {
            entry(&mut self.sources[source].changes, step).add(count);
        }
    }

    /// Counts a document of `bytes` bytes as left out.
    pub fn rejected(
        &mut self,
        source: usize,
        bytes: u64,
        rejection: &Rejection,
        location: &Location,
        excerpt: &str,
    ) {
        entry(&mut self.sources[source].dropped, rejection.reason).add(bytes);
        self.samples.add(rejection, location, excerpt);
    }

    /// Counts a document with this cleaned text as kept; `language` is its ISO 639-3 code.
    pub fn kept(&mut self, source: usize, text: &str, language: Option<&str>) {
        let source = &mut self.sources[source];
        let bytes = text.len() as u64;
        let words = text.split_whitespace().count() as u64;
        source.kept.add(bytes);
        source.words += words;
        source.characters += text.chars().count() as u64;
        entry(&mut source.languages, language.unwrap_or(UNDETERMINED)).add(bytes);
        source.lengths_bytes.add(bytes);
        source.lengths_words.add(words);
    }

    /// Adds another part of the same corpus; the order of merging does not matter.
    pub fn merge(&mut self, other: Self) {
        debug_assert!(
            self.sources.iter().map(|s| &s.name).eq(other.sources.iter().map(|s| &s.name)),
            "parts of one corpus"
        );
        for (source, more) in self.sources.iter_mut().zip(other.sources) {
            source.merge(more);
        }
        self.samples.merge(other.samples);
    }
}

impl SourceTally {
    fn merge(&mut self, other: Self) {
        self.read.merge(other.read);
        self.cut_documents = self.cut_documents.saturating_add(other.cut_documents);
        self.replaced.merge(other.replaced);
        other
            .changes
            .into_iter()
            .for_each(|(step, steps)| self.changes.entry(step).or_default().merge(steps));
        other
            .dropped
            .into_iter()
            .for_each(|(reason, amount)| self.dropped.entry(reason).or_default().merge(amount));
        self.kept.merge(other.kept);
        self.words = self.words.saturating_add(other.words);
        self.characters = self.characters.saturating_add(other.characters);
        other
            .languages
            .into_iter()
            .for_each(|(code, amount)| self.languages.entry(code).or_default().merge(amount));
        self.lengths_bytes.merge(&other.lengths_bytes);
        self.lengths_words.merge(&other.lengths_words);
    }
}

impl Steps {
    fn add(&mut self, count: u64) {
        self.documents += 1;
        self.count += count;
    }

    fn merge(&mut self, other: Self) {
        self.documents = self.documents.saturating_add(other.documents);
        self.count = self.count.saturating_add(other.count);
    }
}

/// Returns the entry of `key`; the key is copied only if it is new.
fn entry<'a, T: Default>(map: &'a mut BTreeMap<String, T>, key: &str) -> &'a mut T {
    if !map.contains_key(key) {
        map.insert(key.to_string(), T::default());
    }
    map.get_mut(key).expect("it is there or was just put there")
}
