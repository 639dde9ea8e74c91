//! The repetition rules of Gopher (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1, table A1): lines,
//! paragraphs and sequences of words that are repeated.
//!
//! Only characters of words are counted, not white space. A repeated line, paragraph or sequence counts from
//! its second occurrence, and no character counts twice. The most frequent sequence does not count as
//! repetition if it occurs once.

use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::Rejection;
use crate::corpus::filter::page::{Words, count_chars};
use crate::corpus::filter::{Filter, Page, Reasons, above, share};
use config::RepetitionFilter;

pub(super) const REASONS: Reasons = &[
    ("duplicate_lines", "A larger share of repeated lines than `repetition.max_duplicate_lines`."),
    (
        "duplicate_line_chars",
        "A larger share of characters in repeated lines than `repetition.max_duplicate_line_chars`.",
    ),
    (
        "duplicate_paragraphs",
        "A larger share of repeated paragraphs than `repetition.max_duplicate_paragraphs`.",
    ),
    (
        "duplicate_paragraph_chars",
        "A larger share of characters in repeated paragraphs than `repetition.max_duplicate_paragraph_chars`.",
    ),
    (
        "top_ngrams",
        "A larger share of characters in the most frequent sequence of words than `repetition.max_top_ngram_chars`.",
    ),
    (
        "duplicate_ngrams",
        "A larger share of characters in repeated sequences of words than `repetition.max_duplicate_ngram_chars`.",
    ),
];

/// Number of words that the first limit in `max_top_ngram_chars` is for.
const FIRST_TOP_WORDS: usize = 2;
/// Number of words that the first limit in `max_duplicate_ngram_chars` is for.
const FIRST_DUPLICATE_WORDS: usize = 5;

pub(super) struct Repetition {
    limits: RepetitionFilter,
}

impl Repetition {
    pub(super) fn new(limits: &RepetitionFilter) -> Self {
        Self { limits: limits.clone() }
    }

    fn sequences(&self, words: &Words) -> Option<Rejection> {
        let top = &self.limits.max_top_ngram_chars;
        let duplicate = &self.limits.max_duplicate_ngram_chars;
        let longest = (FIRST_TOP_WORDS + top.len()).max(FIRST_DUPLICATE_WORDS + duplicate.len()) - 1;
        let mut occurrences = Occurrences::with_capacity(words.len());
        let mut sequences = words.hashes.clone();
        for length in 2..=longest.min(words.len()) {
            // The hash of a sequence is computed from that of its first words, one fewer, and the last word.
            sequences.truncate(words.len() + 1 - length);
            for (sequence, next) in sequences.iter_mut().zip(&words.hashes[length - 1..]) {
                *sequence = mix(sequence.rotate_left(23) ^ next);
            }
            let top_limit = top.get(length.wrapping_sub(FIRST_TOP_WORDS)).copied();
            let duplicate_limit = duplicate.get(length.wrapping_sub(FIRST_DUPLICATE_WORDS)).copied();
            occurrences.clear();
            let counted = if top_limit.is_some() {
                occurrences.most_frequent_chars(&sequences, words, length)
            } else {
                occurrences.repeated_chars(&sequences, words, length)
            };
            // A repeated sequence contains repeated sequences of every shorter length: if there are none,
            // there are no longer ones.
            if counted == 0 {
                return None;
            }
            let repeated = if top_limit.is_some() && duplicate_limit.is_some() {
                occurrences.clear();
                occurrences.repeated_chars(&sequences, words, length)
            } else {
                counted
            };
            let rejection = above(
                "top_ngrams",
                share(counted, words.total_chars),
                top_limit,
                &format!("of the characters stand in the most frequent sequence of {length} words"),
            )
            .or_else(|| {
                above(
                    "duplicate_ngrams",
                    share(repeated, words.total_chars),
                    duplicate_limit,
                    &format!("of the characters stand in repeated sequences of {length} words"),
                )
            });
            if rejection.is_some() {
                return rejection;
            }
        }
        None
    }
}

impl Filter for Repetition {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let limits = &self.limits;
        let lines = Repeated::new(page.lines().iter().copied());
        above("duplicate_lines", lines.share(), limits.max_duplicate_lines, "of the lines were there before")
            .or_else(|| {
                above(
                    "duplicate_line_chars",
                    lines.chars_share(),
                    limits.max_duplicate_line_chars,
                    "of the characters stand in lines that were there before",
                )
            })
            .or_else(|| {
                let paragraphs = Repeated::new(
                    page.text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()),
                );
                let chars = "of the characters stand in paragraphs that were there before";
                above(
                    "duplicate_paragraphs",
                    paragraphs.share(),
                    limits.max_duplicate_paragraphs,
                    "of the paragraphs were there before",
                )
                .or_else(|| {
                    above(
                        "duplicate_paragraph_chars",
                        paragraphs.chars_share(),
                        limits.max_duplicate_paragraph_chars,
                        chars,
                    )
                })
            })
            .or_else(|| {
                Some(page.words())
                    .filter(|words| words.len() as u64 >= limits.min_words)
                    .and_then(|words| self.sequences(words))
            })
    }
}

/// Counts of the texts in a list that repeat an earlier one.
#[derive(Default)]
struct Repeated {
    /// Texts that repeat an earlier one.
    count: u64,
    /// Characters in these.
    chars: u64,
    /// All texts.
    of_count: u64,
    /// Characters in all texts.
    of_chars: u64,
}

impl Repeated {
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let texts: Vec<(u64, u64)> =
            texts.map(|text| (xxh3_64(text.as_bytes()), count_chars(text))).collect();
        let mut occurrences = Occurrences::with_capacity(texts.len());
        let mut repeated = Self { of_count: texts.len() as u64, ..Self::default() };
        for &(hash, chars) in &texts {
            repeated.of_chars += chars;
            if occurrences.slot(hash).count > 1 {
                repeated.count += 1;
                repeated.chars += chars;
            }
        }
        repeated
    }

    fn share(&self) -> f64 {
        share(self.count, self.of_count)
    }

    fn chars_share(&self) -> f64 {
        share(self.chars, self.of_chars)
    }
}

/// Number of occurrences of each hash: open addressing, in one allocation for all lengths of a document.
struct Occurrences {
    slots: Vec<Slot>,
    /// Number of the current round; slots of other rounds count as empty, so that clearing is one addition.
    round: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    hash: u64,
    round: u32,
    count: u32,
}

impl Occurrences {
    fn with_capacity(count: usize) -> Self {
        Self { slots: vec![Slot::default(); (count * 2).next_power_of_two().max(16)], round: 1 }
    }

    fn clear(&mut self) {
        self.round += 1;
    }

    /// Counts a hash and returns its slot.
    fn slot(&mut self, hash: u64) -> Slot {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.round != self.round {
                *slot = Slot { hash, round: self.round, count: 1 };
                return *slot;
            }
            if slot.hash == hash {
                slot.count += 1;
                return *slot;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the number of characters in all occurrences of the most frequent sequence, of the one with
    /// most characters if several are equally frequent; 0 if no sequence occurs twice.
    fn most_frequent_chars(&mut self, sequences: &[u64], words: &Words, length: usize) -> u64 {
        let mut most = 1;
        let mut chars = 0;
        for (at, &hash) in sequences.iter().enumerate() {
            let count = self.slot(hash).count;
            if count > 1 && count >= most {
                let here = u64::from(count)
                    * words.chars[at..at + length].iter().map(|&chars| u64::from(chars)).sum::<u64>();
                chars = if count > most { here } else { here.max(chars) };
                most = count;
            }
        }
        chars
    }

    /// Returns the number of characters in sequences that occurred before, each character counted once.
    fn repeated_chars(&mut self, sequences: &[u64], words: &Words, length: usize) -> u64 {
        let mut chars = 0;
        let mut counted_to = 0;
        for (at, &hash) in sequences.iter().enumerate() {
            if self.slot(hash).count > 1 {
                let from = at.max(counted_to);
                chars += words.chars[from..at + length].iter().map(|&chars| u64::from(chars)).sum::<u64>();
                counted_to = at + length;
            }
        }
        chars
    }
}

fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}
