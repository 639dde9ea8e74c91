//! Determines which tokens begin a word, from the spelling of the vocabulary, independent of texts.

use anyhow::Result;
use serde_json::Value;

use crate::tokenizer::{Tokenizer, load};

/// A space before a word in the spelling of a byte-level vocabulary.
const BYTE_LEVEL_SPACE: char = '\u{120}';

/// Tab, newline and similar characters in the spelling of a byte-level vocabulary: a word never continues
/// after one.
const BYTE_LEVEL_BREAKS: [char; 5] = ['\u{109}', '\u{10a}', '\u{10b}', '\u{10c}', '\u{10d}'];

/// The same characters in vocabularies that spell characters as they are.
const PLAIN_BREAKS: [char; 5] = ['\t', '\n', '\u{b}', '\u{c}', '\r'];

/// A space before a word in the spelling of SentencePiece.
const METASPACE: char = '▁';

/// The word boundaries before and after each token of a vocabulary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WordBoundaries {
    starts: Vec<bool>,
    ends: Vec<bool>,
}

impl WordBoundaries {
    /// Returns true if the token begins a word at any position; a token outside the vocabulary does.
    pub fn starts_word(&self, id: u32) -> bool {
        self.starts.get(id as usize).copied().unwrap_or(true)
    }

    /// Returns true if any token after this one begins a word.
    pub fn ends_word(&self, id: u32) -> bool {
        self.ends.get(id as usize).copied().unwrap_or(true)
    }
}

impl Tokenizer {
    /// Returns the word boundaries of the vocabulary. Byte-level vocabularies spell the space as `Ġ`,
    /// SentencePiece ones as `▁`, WordPiece marks the continuation of a word with `##`; without any such
    /// mark, each token is a word.
    pub fn word_boundaries(&self) -> Result<WordBoundaries> {
        let spelling = Spelling::from_json(&load::parse(self.files(), "tokenizer")?);
        let mut words = WordBoundaries::default();
        for id in 0..self.vocab_size() as u32 {
            let (starts, ends) = self.token(id).map_or((true, true), |token| spelling.boundaries(&token));
            words.starts.push(starts);
            words.ends.push(ends);
        }
        Ok(words)
    }
}

/// The way in which a vocabulary marks the beginning of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spelling {
    ByteLevel,
    Metaspace,
    /// Tokens that continue a word begin with this prefix.
    Prefix(String),
    /// Tokens that end a word end with this suffix.
    Suffix(String),
    /// Each token is a word.
    Words,
}

impl Spelling {
    fn from_json(json: &Value) -> Self {
        let model = &json["model"];
        let [prefix, suffix] = ["continuing_subword_prefix", "end_of_word_suffix"]
            .map(|key| model[key].as_str().filter(|text| !text.is_empty()).map(str::to_string));
        let steps = ["normalizer", "pre_tokenizer", "decoder"].map(|key| &json[key]);
        if let Some(prefix) = prefix {
            Self::Prefix(prefix)
        } else if let Some(suffix) = suffix {
            Self::Suffix(suffix)
        } else if steps.iter().any(|step| has_type(step, "ByteLevel")) {
            Self::ByteLevel
        } else if steps.iter().any(|step| has_type(step, "Metaspace"))
            || model["type"] == "Unigram"
            || json["normalizer"].to_string().contains(METASPACE)
        {
            Self::Metaspace
        } else {
            Self::Words
        }
    }

    /// Returns two flags: the token starts a word, and the next token starts a word.
    fn boundaries(&self, token: &str) -> (bool, bool) {
        match self {
            Self::ByteLevel => (
                token.starts_with(BYTE_LEVEL_SPACE) || token.starts_with(BYTE_LEVEL_BREAKS),
                // A lone space does not end a word: it may be the first piece of a rare word.
                token.ends_with(BYTE_LEVEL_BREAKS),
            ),
            Self::Metaspace => (
                token.starts_with(METASPACE) || token.starts_with(PLAIN_BREAKS),
                token.ends_with(PLAIN_BREAKS),
            ),
            Self::Prefix(prefix) => (!token.starts_with(prefix.as_str()), false),
            Self::Suffix(suffix) => (false, token.ends_with(suffix.as_str())),
            Self::Words => (true, true),
        }
    }
}

/// Returns true if a step, or one of the steps of a sequence, has this type.
fn has_type(step: &Value, name: &str) -> bool {
    match step {
        Value::Object(fields) => {
            fields.get("type").is_some_and(|t| t == name)
                || fields.values().any(|value| has_type(value, name))
        }
        Value::Array(steps) => steps.iter().any(|step| has_type(step, name)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_vocabulary_is_understood() {
        let byte_level = json!({"model": {"type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": null},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]}});
        let byte_level = Spelling::from_json(&byte_level);
        assert_eq!(
            ["Ġword", "word", "Ċ", "Ġ", "ĊĊ"].map(|t| byte_level.boundaries(t)),
            [(true, false), (false, false), (true, true), (true, false), (true, true)]
        );
        let word_piece =
            Spelling::from_json(&json!({"model": {"type": "WordPiece", "continuing_subword_prefix": "##"}}));
        assert_eq!(["gard", "##en", ","].map(|t| word_piece.boundaries(t).0), [true, false, true]);
        let unigram = Spelling::from_json(
            &json!({"model": {"type": "Unigram"}, "pre_tokenizer": {"type": "Metaspace"}}),
        );
        assert_eq!(["▁talo", "ssa", "▁"].map(|t| unigram.boundaries(t).0), [true, false, true]);
        let replaced = json!({"model": {"type": "BPE"}, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}});
        assert_eq!(Spelling::from_json(&replaced), Spelling::Metaspace);
        let suffix = Spelling::from_json(&json!({"model": {"type": "BPE", "end_of_word_suffix": "</w>"}}));
        assert_eq!(["gard", "en</w>"].map(|t| suffix.boundaries(t)), [(false, false), (false, true)]);
        assert_eq!(Spelling::from_json(&json!({"model": {"type": "WordLevel"}})), Spelling::Words);
    }

    #[test]
    fn the_words_of_a_text_are_found() {
        let spelled = "<s> </s> <pad> <mask> t h e g a r d n i s Ġ Ċ".split(' ');
        let vocab: serde_json::Map<String, Value> =
            spelled.map(str::to_string).zip((0..).map(Value::from)).collect();
        let json = json!({"version": "1.0", "added_tokens": [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocab, "merges": []}});
        let tokenizer = Tokenizer::from_files(
            vec![("tokenizer.json".to_string(), json.to_string().into_bytes())],
            "test",
        )
        .unwrap();
        let words = tokenizer.word_boundaries().unwrap();
        let ids = tokenizer.encode("the garden\nis red").unwrap();
        let id = |token: &str| tokenizer.id(token).unwrap();
        let as_they_are = tokenizer.encode_words(&["he", "", "d"]).unwrap();
        assert_eq!(as_they_are, [vec![id("h"), id("e")], vec![], vec![id("d")]]);
        let starts = |i: usize| i == 0 || words.starts_word(ids[i]) || words.ends_word(ids[i - 1]);
        // The newline is a separate token: `is` begins after it.
        assert_eq!((0..ids.len()).filter(|i| starts(*i)).collect::<Vec<_>>(), [0, 3, 10, 11, 13]);
        assert!(words.starts_word(1 << 20) && words.ends_word(1 << 20));
        let with_blanks = tokenizer.for_words().unwrap();
        let blank = with_blanks.id("Ġ").unwrap();
        let each = with_blanks.encode_words(&["he", "", " he"]).unwrap();
        let he = [&[blank], &as_they_are[0][..]].concat();
        assert_eq!(each, [he.clone(), vec![], he.clone()]);
        assert_eq!(with_blanks.encode("he").unwrap(), he, "the crate does the same");
        assert!(with_blanks.asks_for_words());
        let again = Tokenizer::from_files(with_blanks.files().to_vec(), "test").unwrap();
        assert_eq!(again.encode_words(&["he"]).unwrap(), [he]);
    }
}
