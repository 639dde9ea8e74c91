//! Measures how finely a tokenizer divides text: tokens per word, bytes per token, and the share of unknown
//! tokens.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::tokenizer::Tokenizer;

/// Counts over some texts; the counts of several parts can be added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fertility {
    /// Number of texts.
    pub texts: u64,
    /// Number of bytes of UTF-8.
    pub bytes: u64,
    /// Number of words, separated by white space.
    pub words: u64,
    /// Number of tokens, without special tokens around the texts.
    pub tokens: u64,
    /// Number of unknown tokens.
    pub unknown: u64,
}

impl Fertility {
    /// Counts one text and its ids; `unk` is the id of the unknown token, if there is one.
    pub fn add(&mut self, text: &str, ids: &[u32], unk: Option<u32>) {
        self.texts += 1;
        self.bytes += text.len() as u64;
        self.words += text.split_whitespace().count() as u64;
        self.tokens += ids.len() as u64;
        self.unknown += ids.iter().filter(|id| Some(**id) == unk).count() as u64;
    }

    /// Adds the counts of other texts. The sums saturate, since a damaged journal may contain any number.
    pub fn merge(&mut self, other: &Self) {
        self.texts = self.texts.saturating_add(other.texts);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.words = self.words.saturating_add(other.words);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.unknown = self.unknown.saturating_add(other.unknown);
    }

    /// Tokens per word; 0 without words.
    pub fn tokens_per_word(&self) -> f64 {
        ratio(self.tokens, self.words)
    }

    /// Bytes per token; 0 without tokens.
    pub fn bytes_per_token(&self) -> f64 {
        ratio(self.bytes, self.tokens)
    }

    /// Share of unknown tokens; 0 without tokens.
    pub fn unknown_rate(&self) -> f64 {
        ratio(self.unknown, self.tokens)
    }

    /// The counts of `tokenizer` on `texts`.
    pub fn measure<T: AsRef<str> + Sync>(tokenizer: &Tokenizer, texts: &[T]) -> Result<Self> {
        let mut counts = Self::default();
        for (text, ids) in texts.iter().zip(tokenizer.encode_corpus(texts)?) {
            counts.add(text.as_ref(), &ids, tokenizer.special().unk);
        }
        Ok(counts)
    }
}

/// Counts of two tokenizers on the same texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Counts of our tokenizer.
    pub ours: Fertility,
    /// Counts of the other tokenizer.
    pub other: Fertility,
}

impl Comparison {
    /// Counts both tokenizers on `texts`.
    pub fn of<T: AsRef<str> + Sync>(ours: &Tokenizer, other: &Tokenizer, texts: &[T]) -> Result<Self> {
        Ok(Self { ours: Fertility::measure(ours, texts)?, other: Fertility::measure(other, texts)? })
    }

    /// Our tokens per token of the other tokenizer: below 1, ours has fewer.
    pub fn token_ratio(&self) -> f64 {
        ratio(self.ours.tokens, self.other.tokens)
    }
}

fn ratio(count: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { count as f64 / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_survive_json() {
        let mut all = Fertility::default();
        all.add(" yksi kaksi\nkolme ", &[4, 9, 3, 3], Some(3));
        let mut more = Fertility::default();
        more.add("äö", &[7, 8], None);
        all.merge(&more);
        assert_eq!(all, Fertility { texts: 2, bytes: 22, words: 4, tokens: 6, unknown: 2 });
        assert!(
            (all.tokens_per_word() - 1.5).abs() < 1e-12 && (all.bytes_per_token() - 22.0 / 6.0).abs() < 1e-12
        );
        assert!(
            (all.unknown_rate() - 1.0 / 3.0).abs() < 1e-12 && Fertility::default().tokens_per_word() == 0.0
        );
        assert_eq!(serde_json::from_str::<Fertility>(&serde_json::to_string(&all).unwrap()).unwrap(), all);
    }
}
