//! Perplexity of a text under a small character model that is trained on good text. Documents that are not
//! prose in its language (other languages, code, tables, broken encodings) have the highest perplexity.
//!
//! The model: character n-grams, interpolated from the longest to the empty one after Witten and Bell (1991,
//! "The zero-frequency problem", method C): `P(c | h) = (n(hc) + t(h) P(c | h')) / (n(h) + t(h))`, where `n`
//! is the count, `t` is the number of different followers, and `h'` is `h` without its first character. The
//! counts are in a hash table of fixed size.

use std::path::Path;

use anyhow::{Context, Result};

use crate::corpus::Rejection;
use crate::corpus::filter::{Filter, Page, Reasons, reject};
use crate::corpus::texts::{Most, for_each_text};
use base::error::Problem;
use config::PerplexityFilter;

pub(super) const REASONS: Reasons =
    &[("perplexity", "More surprising to the model of characters than `perplexity.max_perplexity`.")];

const MOST_ORDER: usize = 8;

/// Least characters of a text whose perplexity is meaningful; a shorter text is kept.
const FEWEST_CHARS: usize = 20;

/// Limit on the characters that are read of a text; of a longer text, half from the beginning and half from
/// the middle.
const MOST_CHARS: usize = 1024;

/// Probability of an unknown character: 1 / the number of characters in the basic plane of Unicode.
const UNIFORM: f64 = 1.0 / 65_536.0;

pub(super) struct Perplexity {
    model: Model,
    most: f64,
}

impl Perplexity {
    /// Trains the model; returns `None` if the filter is disabled.
    pub(super) fn new(config: &PerplexityFilter) -> Result<Option<Self>> {
        let Some(most) = config.max_perplexity else { return Ok(None) };
        let mut model = Model::new(config.order, config.memory_bytes);
        let share_bytes = config.train_bytes / config.reference_files.len().max(1) as u64;
        for file in &config.reference_files {
            for_each_text(Path::new(file), Most::Beginning(share_bytes), |text| model.learn(text))
                .context("learning what usual text is")?;
        }
        if model.used == 0 {
            return Err(Problem::usage("hold no text to learn from")
                .at("data.filters.perplexity.reference_files")
                .into());
        }
        Ok(Some(Self { model, most }))
    }
}

impl Filter for Perplexity {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let perplexity = self.model.perplexity(page.text)?;
        if perplexity <= self.most {
            return None;
        }
        reject(
            "perplexity",
            format!("perplexity {perplexity:.1} a character, at most {} are allowed", self.most),
        )
    }
}

/// Hash of the empty n-gram.
const NOTHING: u64 = 0;

/// Counts of n-grams of up to `order` characters, in a hash table.
struct Model {
    entries: Vec<Entry>,
    used: usize,
    order: usize,
}

/// Counts of an n-gram: its own, and those of the characters after it.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Part of the n-gram's hash; 0 marks an empty entry.
    tag: u32,
    count: u32,
    /// Number of times that a character followed.
    followed: u32,
    /// Number of different characters that followed.
    followers: u32,
}

/// The last characters, newest first, and the hashes of the n-grams that they end.
struct Recent {
    chars: [u32; MOST_ORDER],
    hashes: [u64; MOST_ORDER],
}

impl Recent {
    fn new() -> Self {
        // Every text begins as if a space came before it.
        let mut recent = Self { chars: [0; MOST_ORDER], hashes: [0; MOST_ORDER] };
        recent.push(' ');
        recent
    }

    #[inline(always)]
    fn push(&mut self, c: char) {
        self.chars.copy_within(0..MOST_ORDER - 1, 1);
        self.chars[0] = u32::from(c);
        let mut hash = 0u64;
        for (slot, &c) in self.hashes.iter_mut().zip(&self.chars) {
            hash = (hash.rotate_left(29) ^ u64::from(c)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *slot = hash ^ (hash >> 29);
        }
    }
}

impl Model {
    fn new(order: usize, memory_bytes: u64) -> Self {
        let most = (memory_bytes as usize / size_of::<Entry>()).max(1024);
        // The number of entries is the largest power of two that fits.
        let entries = 1 << most.ilog2();
        Self { entries: vec![Entry::default(); entries], used: 0, order: order.clamp(2, MOST_ORDER) }
    }

    fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32 | 1
    }

    /// Returns the index of an n-gram's entry, or of the empty entry where it would be inserted.
    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        let mask = self.entries.len() - 1;
        let tag = Self::tag(hash);
        let mut at = hash as usize & mask;
        while self.entries[at].tag != 0 && self.entries[at].tag != tag {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns the index of an n-gram's entry, inserting it if it is missing; `None` if the table is full.
    fn entry(&mut self, hash: u64) -> Option<usize> {
        let at = self.place(hash);
        if self.entries[at].tag != 0 {
            return Some(at);
        }
        // Some entries must stay empty, since a search ends at an empty one.
        if self.used >= self.entries.len() / 8 * 7 {
            return None;
        }
        self.used += 1;
        self.entries[at].tag = Self::tag(hash);
        Some(at)
    }

    fn learn(&mut self, text: &str) {
        let mut recent = Recent::new();
        for c in folded(text) {
            let before = recent.hashes;
            recent.push(c);
            for length in 1..=self.order {
                let context = if length == 1 { NOTHING } else { before[length - 2] };
                let Some(context) = self.entry(context) else { break };
                let Some(at) = self.entry(recent.hashes[length - 1]) else { break };
                let is_first = self.entries[at].count == 0;
                self.entries[at].count = self.entries[at].count.saturating_add(1);
                self.entries[context].followed = self.entries[context].followed.saturating_add(1);
                self.entries[context].followers += u32::from(is_first);
            }
        }
    }

    /// Returns the perplexity per character of `text`; `None` if the text is too short.
    fn perplexity(&self, text: &str) -> Option<f64> {
        let middle = text.len() / 2;
        let middle = (middle..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let is_long = text.len() > MOST_CHARS * 2;
        let (mut bits, mut chars) =
            if is_long { self.bits(&text[..middle], MOST_CHARS / 2) } else { self.bits(text, MOST_CHARS) };
        if is_long {
            let (more_bits, more_chars) = self.bits(&text[middle..], MOST_CHARS / 2);
            (bits, chars) = (bits + more_bits, chars + more_chars);
        }
        (chars >= FEWEST_CHARS).then(|| (bits / chars as f64).exp2())
    }

    /// Returns the bits of information in the first characters of `text`, and their number, at most `most`.
    fn bits(&self, text: &str, most: usize) -> (f64, usize) {
        let empty = self.entries[self.place(NOTHING)];
        // One logarithm for many characters: that of the product of their probabilities, before it
        // underflows.
        let mut bits = 0.0;
        let mut product = 1.0f64;
        let mut chars = 0;
        let mut recent = Recent::new();
        // Entries of the contexts that end before the next character, of 0, 1, 2, ... characters.
        let mut contexts = [Entry::default(); MOST_ORDER + 1];
        contexts[0] = empty;
        contexts[1] = self.entries[self.place(recent.hashes[0])];
        for c in folded(text).take(most) {
            recent.push(c);
            let mut found = [Entry::default(); MOST_ORDER + 1];
            found[0] = empty;
            let mut probability = UNIFORM;
            let mut is_known = true;
            for length in 1..=self.order {
                if is_known {
                    found[length] = self.entries[self.place(recent.hashes[length - 1])];
                    is_known = found[length].tag != 0;
                }
                let context = contexts[length - 1];
                if context.followed > 0 {
                    let followed = f64::from(context.followed);
                    let followers = f64::from(context.followers);
                    probability =
                        (f64::from(found[length].count) + followers * probability) / (followed + followers);
                } else if !is_known {
                    break;
                }
            }
            product *= probability;
            if product < 1e-250 {
                bits -= product.log2();
                product = 1.0;
            }
            chars += 1;
            contexts = found;
        }
        (bits - product.log2(), chars)
    }
}

/// Returns the characters as the model reads them: lower case, one space for white space, `0` for every
/// digit.
fn folded(text: &str) -> impl Iterator<Item = char> {
    let mut after_blank = true;
    text.chars().filter_map(move |c| {
        let c = match c {
            'a'..='z' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            '0'..='9' => '0',
            _ if c.is_whitespace() => ' ',
            // Only the first character if the lower-case form has several.
            _ => c.to_lowercase().next().unwrap_or(c),
        };
        let is_repeated = c == ' ' && after_blank;
        after_blank = c == ' ';
        (!is_repeated).then_some(c)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> Model {
        let mut model = Model::new(5, 1 << 20);
        model.learn(text);
        model
    }

    #[test]
    fn one_step_gives_the_probabilities_of_the_formula() {
        // After the empty context, two characters occurred, both different; after the space at the beginning,
        // `a` occurred once.
        let (bits, chars) = model("ab").bits("a", 10);
        let unigram = (1.0 + 2.0 * UNIFORM) / (2.0 + 2.0);
        let bigram = (1.0 + 1.0 * unigram) / (1.0 + 1.0);
        assert_eq!(chars, 1);
        assert!((bits + f64::log2(bigram)).abs() < 1e-12, "{bits} and {}", -f64::log2(bigram));
    }

    #[test]
    fn probabilities_of_all_characters_sum_to_one() {
        let model = model("kissa istuu puussa ja katsoo kuuta, koira istuu maassa");
        for context in ["", "i", "kis", "ssa i", "zzz", "puussa ja"] {
            let before = model.bits(context, 100).0;
            let known: f64 = ('a'..='z')
                .chain([' ', ','])
                .map(|c| {
                    let (bits, chars) = model.bits(&format!("{context}{c}"), 100);
                    if chars == folded(context).count() { 0.0 } else { (before - bits).exp2() }
                })
                .sum();
            // The remaining probability belongs to characters that did not occur.
            assert!(known <= 1.0 + 1e-9 && known > 0.5, "{context:?}: {known}");
        }
    }

    #[test]
    fn a_full_table_keeps_its_entries() {
        let mut model = Model::new(8, 0);
        let text: String =
            (0..20_000u32).filter_map(|i| char::from_u32(97 + i.wrapping_mul(2_654_435_761) % 26)).collect();
        model.learn(&text);
        assert_eq!(model.used, 1024 / 8 * 7);
        assert!(model.perplexity(&text).unwrap().is_finite());
    }
}
