//! The share of a text that a tokenizer does not know, in bytes: one unknown token may replace a long word,
//! so that shares of tokens are misleading.

use anyhow::Result;

use crate::tokenizer::Tokenizer;

/// Share of unknown text from which on a warning is shown.
pub const MUCH_UNKNOWN: f64 = 0.1;

/// Bytes of text to examine: more are not needed for a share.
const SAMPLE_BYTES: u64 = 256 << 10;

/// Most bytes to examine of one text.
const TEXT_BYTES: usize = 16 << 10;

/// Number of bytes of text replaced by unknown tokens, and of all examined bytes; without white space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnknownText {
    /// Bytes replaced by unknown tokens.
    pub unknown_bytes: u64,
    /// All examined bytes.
    pub looked_at_bytes: u64,
}

impl UnknownText {
    /// Examines a text with these ids, unless enough bytes were examined.
    pub fn add(&mut self, tokenizer: &Tokenizer, text: &str, ids: &[u32]) -> Result<()> {
        if self.looked_at_bytes >= SAMPLE_BYTES {
            return Ok(());
        }
        let mut end = text.len().min(TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        let all = written_bytes(text);
        self.looked_at_bytes = self.looked_at_bytes.saturating_add(all);
        let Some(unk) = tokenizer.special().unk.filter(|unk| ids.contains(unk)) else { return Ok(()) };
        let encoded = tokenizer.encode_with_offsets(text)?;
        let unknown = encoded.ids.iter().zip(&encoded.offsets).filter(|(id, _)| **id == unk);
        let bytes = unknown.filter_map(|(_, (start, end))| Some(written_bytes(text.get(*start..*end)?)));
        self.unknown_bytes = self.unknown_bytes.saturating_add(bytes.sum::<u64>().min(all));
        Ok(())
    }

    /// Examines the first of some texts with their ids.
    pub fn of<T: AsRef<str>>(tokenizer: &Tokenizer, texts: &[T], ids: &[Vec<u32>]) -> Result<Self> {
        let mut found = Self::default();
        texts.iter().zip(ids).try_for_each(|(text, ids)| found.add(tokenizer, text.as_ref(), ids))?;
        Ok(found)
    }

    /// The share of unknown bytes; 0 if no bytes were examined.
    pub fn share(self) -> f64 {
        self.unknown_bytes as f64 / self.looked_at_bytes.max(1) as f64
    }
}

fn written_bytes(text: &str) -> u64 {
    text.split_whitespace().map(|word| word.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokenizer() -> Tokenizer {
        let vocab = json!({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "cat": 6});
        let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].iter().enumerate().map(|(id, name)| {
            json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        });
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": special.collect::<Vec<_>>(),
            "normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
            "decoder": null,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocab},
        });
        let files = vec![("tokenizer.json".to_string(), json.to_string().into_bytes())];
        Tokenizer::from_files(files, "a test").unwrap()
    }

    #[test]
    fn the_share_is_of_bytes_and_not_of_tokens() {
        // Two tokens of six are unknown, and 2 + 21 of 31 bytes.
        let words = "a cat a  cat ab \u{4e00}\u{4e01}\u{4e02}\u{4e03}\u{4e04}\u{4e05}\u{4e06}";
        for (text, share) in [(words, 23.0 / 31.0), ("a cat", 0.0), ("dog", 1.0), ("  ", 0.0)] {
            let tokenizer = tokenizer();
            let ids = tokenizer.encode_corpus(&[text]).unwrap();
            let found = UnknownText::of(&tokenizer, &[text], &ids).unwrap().share();
            assert!((found - share).abs() < 1e-12, "{text}: {found}");
        }
    }

    #[test]
    fn only_a_sample_of_the_text_is_examined() {
        let long = "dog ".repeat(TEXT_BYTES);
        let mut found = UnknownText::default();
        found.add(&tokenizer(), &long, &[1]).unwrap();
        assert_eq!(found.looked_at_bytes, TEXT_BYTES as u64 / 4 * 3);
        found.looked_at_bytes = SAMPLE_BYTES;
        let before = found;
        found.add(&tokenizer(), &long, &[1]).unwrap();
        assert_eq!(found, before);
    }
}
