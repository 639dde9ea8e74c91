//! Finds text of evaluation files in documents: sequences of words that both have (Brown et al. 2020,
//! "Language Models are Few-Shot Learners", appendix C, with 13 words).
//!
//! Words are compared in lower case, letters and digits only. Memory holds a 64-bit hash for each sequence of
//! the evaluation files; the chance that a sequence of a document has the hash of a different one is about
//! 1 in 10^12.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;

use anyhow::Result;

use crate::corpus::clean::Cleaner;
use crate::corpus::filter::{Folded, Page, Reasons};
use crate::corpus::texts::{Most, for_each_text};
use base::error::Problem;
use config::{CleaningConfig, ContaminationConfig};

pub(super) const REASONS: Reasons = &[("contaminated", "Shares sequences of words with an evaluation file.")];

/// Least number of words of an example that is searched for: shorter sentences occur by chance.
const FEWEST_WORDS: usize = 8;

const FILE_CAP_BYTES: u64 = 64 << 20;

/// Limit on the hashes in memory: 4 million need 64 to 128 MB.
const MOST_SEQUENCES: usize = 4_000_000;

/// Hashed word sequences of all evaluation files.
pub(super) struct Contamination {
    /// Index of an evaluation file by the hash of a sequence of words in it.
    files: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    names: Vec<String>,
    ngram_words: usize,
    /// Lengths, in words, of examples that are shorter than `ngram_words`, ascending.
    short_words: Vec<usize>,
    min_overlap: u64,
}

/// Text that a document shares with evaluation files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Overlap {
    /// Number of the document's sequences that are in an evaluation file.
    pub(super) count: u64,
    /// Description for the report.
    pub(super) detail: String,
}

impl Contamination {
    /// Reads the evaluation files; returns `None` when the configuration names no file.
    pub(super) fn new(config: &ContaminationConfig) -> Result<Option<Self>> {
        if config.files.is_empty() {
            return Ok(None);
        }
        let mut contamination = Self {
            files: HashMap::default(),
            names: config.files.clone(),
            ngram_words: config.ngram_words,
            short_words: Vec::new(),
            min_overlap: config.min_overlap,
        };
        for (index, name) in config.files.iter().enumerate() {
            contamination.add(index as u32, name)?;
        }
        contamination.short_words.sort_unstable();
        Ok(Some(contamination))
    }

    fn add(&mut self, index: u32, name: &str) -> Result<()> {
        // Cleaned like documents, so that `&auml;` and decomposed letters make no difference.
        let cleaner = Cleaner::new(&CleaningConfig::default());
        let mut found = false;
        let mut is_full = false;
        for_each_text(Path::new(name), Most::All(FILE_CAP_BYTES), |text| {
            let folded = Folded::new(&cleaner.clean(text).0);
            let words = folded.len().min(self.ngram_words);
            if words < FEWEST_WORDS.min(self.ngram_words) || is_full {
                return;
            }
            found = true;
            if words < self.ngram_words && !self.short_words.contains(&words) {
                self.short_words.push(words);
            }
            for hash in folded.sequences(words) {
                self.files.entry(hash).or_insert(index);
            }
            is_full = self.files.len() > MOST_SEQUENCES;
        })?;
        if is_full {
            let message = format!(
                "brings the evaluation files over {MOST_SEQUENCES} sequences of words, the most that are kept in memory"
            );
            return Err(Problem::usage(message)
                .at(name)
                .hint("name test splits only, and fewer of them")
                .into());
        }
        if !found {
            let message =
                format!("holds no example of at least {FEWEST_WORDS} words, nothing could be found by it");
            return Err(Problem::usage(message)
                .at(name)
                .hint("a .csv, .tsv or .jsonl file, or one with an example a line, is wanted; is it one word a line?")
                .into());
        }
        Ok(())
    }

    /// Returns the overlap of a page with the evaluation files if it is large enough to count as
    /// contaminated.
    pub(super) fn check(&self, page: &Page) -> Option<Overlap> {
        let folded = page.folded();
        let shorter = self
            .short_words
            .iter()
            .find_map(|&words| self.files_with(folded, words).next().map(|file| (file, words)));
        let (count, first) = self
            .files_with(folded, self.ngram_words)
            .fold((0, None), |(count, first), file| (count + 1, first.or(Some(file))));
        if let Some(file) = first.filter(|_| count >= self.min_overlap) {
            let detail = format!(
                "{count} of its sequences of {} words stand in `{}`",
                self.ngram_words, self.names[file as usize]
            );
            return Some(Overlap { count, detail });
        }
        let (file, words) = shorter?;
        let detail = format!("holds an example of {words} words of `{}`", self.names[file as usize]);
        Some(Overlap { count: count + 1, detail })
    }

    /// Yields the file of each sequence of `words` words of a page that is in an evaluation file.
    fn files_with<'a>(&'a self, folded: &'a Folded, words: usize) -> impl Iterator<Item = u32> + 'a {
        folded.sequences(words).filter_map(|hash| self.files.get(&hash).copied())
    }
}

/// Hasher that returns its key, since the keys are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
