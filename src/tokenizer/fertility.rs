//! How finely a tokenizer cuts text: tokens for a word, bytes for a token, and what it does not know.

use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;

use crate::tokenizer::Tokenizer;

/// Counts over some texts; those of several parts can be added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fertility {
    /// Texts.
    pub texts: u64,
    /// Bytes of UTF-8.
    pub bytes: u64,
    /// Words: what stands between white space.
    pub words: u64,
    /// Tokens, without special ones around the texts.
    pub tokens: u64,
    /// Tokens that stand for something unknown.
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

    /// Adds the counts of other texts. A damaged journal may claim any number.
    pub fn merge(&mut self, other: &Self) {
        self.texts = self.texts.saturating_add(other.texts);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.words = self.words.saturating_add(other.words);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.unknown = self.unknown.saturating_add(other.unknown);
    }

    /// Tokens for each word; 0 without words.
    pub fn tokens_per_word(&self) -> f64 {
        ratio(self.tokens, self.words)
    }

    /// Bytes for each token; 0 without tokens.
    pub fn bytes_per_token(&self) -> f64 {
        ratio(self.bytes, self.tokens)
    }

    /// Share of the tokens that is unknown; 0 without tokens.
    pub fn unknown_rate(&self) -> f64 {
        ratio(self.unknown, self.tokens)
    }

    /// The counts of `tokenizer` on `texts`.
    pub fn of<T: AsRef<str> + Sync>(tokenizer: &Tokenizer, texts: &[T]) -> Result<Self> {
        let mut counts = Self::default();
        for (text, ids) in texts.iter().zip(tokenizer.encode_corpus(texts)?) {
            counts.add(text.as_ref(), &ids, tokenizer.special().unk);
        }
        Ok(counts)
    }
}

/// Two tokenizers on the same texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Counts of the one.
    pub ours: Fertility,
    /// Counts of the other.
    pub other: Fertility,
}

impl Comparison {
    /// Counts both tokenizers on `texts`.
    pub fn of<T: AsRef<str> + Sync>(ours: &Tokenizer, other: &Tokenizer, texts: &[T]) -> Result<Self> {
        Ok(Self { ours: Fertility::of(ours, texts)?, other: Fertility::of(other, texts)? })
    }

    /// Our tokens for each token of the other: below 1, ours are fewer.
    pub fn token_ratio(&self) -> f64 {
        ratio(self.ours.tokens, self.other.tokens)
    }
}

fn ratio(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
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
