//! How surprising a text is to a small model of characters that learnt from good text: documents that are no
//! prose of its language (other languages, code, tables, broken encodings) surprise it most.
//!
//! The model: character n-grams, interpolated from the longest to none after Witten and Bell (1991, "The
//! zero-frequency problem", method C): `P(c | h) = (n(hc) + t(h) P(c | h')) / (n(h) + t(h))`, where `n`
//! counts, `t` counts different followers, and `h'` is `h` without its first character. Counts lie in a
//! hashed table of fixed size.

use std::path::Path;

use anyhow::Context;
use anyhow::Result;

use crate::config::PerplexityFilter;
use crate::corpus::Rejection;
use crate::corpus::filter::Filter;
use crate::corpus::filter::Page;
use crate::corpus::filter::Reasons;
use crate::corpus::filter::reject;
use crate::corpus::texts::Most;
use crate::corpus::texts::for_each_text;
use crate::error::Problem;

pub(super) const REASONS: Reasons =
    &[("perplexity", "More surprising to the model of characters than `perplexity.max_perplexity`.")];

const MOST_ORDER: usize = 8;

/// A shorter text says nothing about its perplexity, and is kept.
const FEWEST_CHARS: usize = 20;

/// Of a longer text, the beginning and the middle are read, half of this each.
const MOST_CHARS: usize = 1024;

/// What an unknown character costs: one of as many as the basic plane of Unicode has.
const UNIFORM: f64 = 1.0 / 65_536.0;

pub(super) struct Perplexity {
    model: Model,
    most: f64,
}

impl Perplexity {
    /// `None` when it is switched off; else the model learns here.
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

/// The hash of no characters at all.
const NOTHING: u64 = 0;

/// Counts of n-grams up to an order.
struct Model {
    entries: Vec<Entry>,
    used: usize,
    order: usize,
}

/// An n-gram: as one, and as what stands before another character.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Part of its hash; 0 is an empty entry.
    tag: u32,
    count: u32,
    /// How often a character followed, and how many different ones did.
    followed: u32,
    followers: u32,
}

/// The last characters, the newest first, and the hashes of the n-grams that they end.
struct Recent {
    chars: [u32; MOST_ORDER],
    hashes: [u64; MOST_ORDER],
}

impl Recent {
    fn new() -> Self {
        // Every text begins as if behind a space.
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
        // The largest power of two that fits.
        let entries = 1 << most.ilog2();
        Self { entries: vec![Entry::default(); entries], used: 0, order: order.clamp(2, MOST_ORDER) }
    }

    fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32 | 1
    }

    /// Where an n-gram is, or would be.
    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        let (mask, tag) = (self.entries.len() - 1, Self::tag(hash));
        let mut at = hash as usize & mask;
        while self.entries[at].tag != 0 && self.entries[at].tag != tag {
            at = (at + 1) & mask;
        }
        at
    }

    /// Where an n-gram is, made where it was not, and whether it was made; `None` when the table is full.
    fn entry(&mut self, hash: u64) -> Option<(usize, bool)> {
        let at = self.place(hash);
        if self.entries[at].tag != 0 {
            return Some((at, false));
        }
        // Some must stay empty: there, a search ends.
        if self.used >= self.entries.len() / 8 * 7 {
            return None;
        }
        self.used += 1;
        self.entries[at].tag = Self::tag(hash);
        Some((at, true))
    }

    fn learn(&mut self, text: &str) {
        let mut recent = Recent::new();
        for c in folded(text) {
            let before = recent.hashes;
            recent.push(c);
            for length in 1..=self.order {
                let context = if length == 1 { NOTHING } else { before[length - 2] };
                let Some((context, _)) = self.entry(context) else { break };
                let Some((at, _)) = self.entry(recent.hashes[length - 1]) else { break };
                let is_first = self.entries[at].count == 0;
                self.entries[at].count = self.entries[at].count.saturating_add(1);
                self.entries[context].followed = self.entries[context].followed.saturating_add(1);
                self.entries[context].followers += u32::from(is_first);
            }
        }
    }

    /// The perplexity of a character of `text`; `None` of a text that is too short.
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

    /// Bits that the first characters of `text` cost, at most `most` of them, and how many they are.
    fn bits(&self, text: &str, most: usize) -> (f64, usize) {
        let empty = self.entries[self.place(NOTHING)];
        // One logarithm for many characters: the product of their probabilities, taken before it underflows.
        let (mut bits, mut product, mut chars) = (0.0, 1.0f64, 0);
        let mut recent = Recent::new();
        // Entries of what stands before: its last 0, 1, 2, ... characters.
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
                    let (followed, followers) = (f64::from(context.followed), f64::from(context.followers));
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

/// Characters as the model sees them: lower case, one space for white space, one digit for all.
fn folded(text: &str) -> impl Iterator<Item = char> {
    let mut after_blank = true;
    text.chars().filter_map(move |c| {
        let c = match c {
            'a'..='z' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            '0'..='9' => '0',
            _ if c.is_whitespace() => ' ',
            // The first of several: a sharp S and its like are one character.
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
        // Behind nothing came two characters, both different; behind the space at the beginning came `a`,
        // once of one.
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
            // The rest goes to the characters that never occurred.
            assert!(known <= 1.0 + 1e-9 && known > 0.5, "{context:?}: {known}");
        }
    }

    #[test]
    fn a_full_table_goes_on_with_what_it_has() {
        let mut model = Model::new(8, 0);
        let text: String =
            (0..20_000u32).filter_map(|i| char::from_u32(97 + i.wrapping_mul(2_654_435_761) % 26)).collect();
        model.learn(&text);
        assert_eq!(model.used, 1024 / 8 * 7);
        assert!(model.perplexity(&text).unwrap().is_finite());
    }
}
