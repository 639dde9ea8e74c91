//! The share of a text that a tokenizer does not know, in bytes: one unknown token may stand for a long word, so
//! that shares of tokens say too little.

use anyhow::Result;

use crate::tokenizer::Tokenizer;

/// A share of unknown text from which on it is worth a warning.
pub const MUCH_UNKNOWN: f64 = 0.1;

/// Text that is looked at, in bytes: a share needs no more.
const SAMPLE_BYTES: u64 = 256 << 10;

/// Of one text at most so many bytes are looked at.
const TEXT_BYTES: usize = 16 << 10;

/// Bytes of text that stand behind unknown tokens, of all bytes that were looked at; without white space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnknownText {
    /// Behind unknown tokens.
    pub unknown_bytes: u64,
    /// All of them.
    pub looked_at_bytes: u64,
}

impl UnknownText {
    /// Looks at a text whose ids these are, unless enough was looked at.
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

    /// That of some texts with their ids, of which the first ones are looked at.
    pub fn of<T: AsRef<str>>(tokenizer: &Tokenizer, texts: &[T], ids: &[Vec<u32>]) -> Result<Self> {
        let mut found = Self::default();
        texts.iter().zip(ids).try_for_each(|(text, ids)| found.add(tokenizer, text.as_ref(), ids))?;
        Ok(found)
    }

    /// The share of the bytes that is unknown; 0 where nothing was looked at.
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
        let share = |text: &str| {
            let tokenizer = tokenizer();
            let ids = tokenizer.encode_corpus(&[text]).unwrap();
            UnknownText::of(&tokenizer, &[text], &ids).unwrap().share()
        };
        // Two tokens of six are unknown, and 2 + 21 of 31 bytes.
        let words = "a cat a  cat ab \u{4e00}\u{4e01}\u{4e02}\u{4e03}\u{4e04}\u{4e05}\u{4e06}";
        assert!((share(words) - 23.0 / 31.0).abs() < 1e-12);
        assert!((share("a cat") - 0.0).abs() < 1e-12);
        assert!((share("dog") - 1.0).abs() < 1e-12);
        assert!((share("  ") - 0.0).abs() < 1e-12);
    }

    #[test]
    fn no_more_is_looked_at_than_a_share_needs() {
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
