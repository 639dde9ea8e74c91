//! What one part of the corpus came to; parts are counted apart, stored, and merged.
//!
//! Its size is bounded: counters by source, reason, step and language, and a few samples for each reason.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::corpus::Location;
use crate::corpus::Rejection;
use crate::corpus::report::Amount;
use crate::corpus::report::Lengths;
use crate::corpus::report::Samples;

/// ISO 639-3 for a language that was not determined.
pub(super) const UNDETERMINED: &str = "und";

/// What one source came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceTally {
    /// What the source is called.
    pub name: String,
    /// What came in; bytes of decompressed text.
    pub read: Amount,
    /// Pieces of documents over the length limit: the first of each is counted.
    pub cut_documents: u64,
    /// Documents with invalid UTF-8 that was replaced, and how many sequences of bytes.
    pub replaced: Steps,
    /// What cleaning did, by step.
    pub changes: BTreeMap<String, Steps>,
    /// What was left out, by reason.
    pub dropped: BTreeMap<String, Amount>,
    /// What was let through; bytes after cleaning.
    pub kept: Amount,
    /// Words (between white space) of what was let through.
    pub words: u64,
    /// Characters (Unicode scalar values) of what was let through.
    pub characters: u64,
    /// What was let through by language (ISO 639-3; `und` where it was not determined).
    pub languages: BTreeMap<String, Amount>,
    /// Lengths in bytes of what was let through.
    pub lengths_bytes: Lengths,
    /// Lengths in words of what was let through.
    pub lengths_words: Lengths,
}

/// How often something was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// In how many documents.
    pub documents: u64,
    /// How often in all.
    pub count: u64,
}

/// Counts by source, and samples of what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// In the order of the configuration.
    pub sources: Vec<SourceTally>,
    /// Examples by reason.
    pub samples: Samples,
}

impl Tally {
    /// Nothing yet, of these sources.
    pub fn new(source_names: &[String]) -> Self {
        let source = |name: &String| SourceTally { name: name.clone(), ..SourceTally::default() };
        Self { sources: source_names.iter().map(source).collect(), samples: Samples::default() }
    }

    /// A document of `bytes` bytes came in. Call it for what reading left out, too: then read = dropped +
    /// kept.
    pub fn read(&mut self, source: usize, bytes: u64, was_cut: bool, replaced: u32) {
        let source = &mut self.sources[source];
        source.read.add(bytes);
        source.cut_documents += u64::from(was_cut);
        if replaced > 0 {
            source.replaced.add(u64::from(replaced));
        }
    }

    /// Cleaning did this to a document: [`Judged::changes`](crate::corpus::Judged::changes).
    pub fn changed(&mut self, source: usize, changes: &[(&'static str, u64)]) {
        for &(step, count) in changes {
            entry(&mut self.sources[source].changes, step).add(count);
        }
    }

    /// A document of `bytes` bytes is left out.
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

    /// A document is let through with this cleaned text; `language` is its ISO 639-3 code.
    pub fn kept(&mut self, source: usize, text: &str, language: Option<&str>) {
        let source = &mut self.sources[source];
        let (bytes, words) = (text.len() as u64, text.split_whitespace().count() as u64);
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

/// The entry of `key`, which is copied only the first time.
fn entry<'a, T: Default>(map: &'a mut BTreeMap<String, T>, key: &str) -> &'a mut T {
    if !map.contains_key(key) {
        map.insert(key.to_string(), T::default());
    }
    map.get_mut(key).expect("it is there or was just put there")
}
