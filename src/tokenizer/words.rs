//! Which tokens begin a word, told from how the tokenizer spells its vocabulary. It knows no text.

use anyhow::Result;
use serde_json::Value;

use crate::tokenizer::Tokenizer;
use crate::tokenizer::load;

/// A space before a word, as a byte-level vocabulary spells it.
const BYTE_LEVEL_SPACE: char = '\u{120}';

/// Tab, newline and their like, as a byte-level vocabulary spells them: nothing after one belongs to the word
/// before.
const BYTE_LEVEL_BREAKS: [char; 5] = ['\u{109}', '\u{10a}', '\u{10b}', '\u{10c}', '\u{10d}'];

/// The same where characters are spelled as they are.
const PLAIN_BREAKS: [char; 5] = ['\t', '\n', '\u{b}', '\u{c}', '\r'];

/// A space before a word, as SentencePiece spells it.
const METASPACE: char = '▁';

/// What each token of a vocabulary says of the words around it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WordBoundaries {
    starts: Vec<bool>,
    ends: Vec<bool>,
}

impl WordBoundaries {
    /// Whether the token begins a word wherever it stands; one outside the vocabulary does.
    pub fn starts_word(&self, id: u32) -> bool {
        self.starts.get(id as usize).copied().unwrap_or(true)
    }

    /// Whether the token after this one begins a word, whatever it is.
    pub fn ends_word(&self, id: u32) -> bool {
        self.ends.get(id as usize).copied().unwrap_or(true)
    }
}

impl Tokenizer {
    /// Which tokens begin a word. Byte-level vocabularies spell the space as `Ġ`, SentencePiece ones as `▁`,
    /// WordPiece marks what goes on with `##`; where nothing tells, each token is a word.
    pub fn word_boundaries(&self) -> Result<WordBoundaries> {
        let spelling = Spelling::of(&load::parse(self.files(), "tokenizer")?);
        let mut words = WordBoundaries::default();
        for id in 0..self.vocab_size() as u32 {
            let (starts, ends) = self.token(id).map_or((true, true), |token| spelling.boundaries(&token));
            words.starts.push(starts);
            words.ends.push(ends);
        }
        Ok(words)
    }
}

/// How a vocabulary marks the beginning of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spelling {
    ByteLevel,
    Metaspace,
    /// Tokens that go on with a word begin like this.
    Prefix(String),
    /// Tokens that end a word end like this.
    Suffix(String),
    /// Each token is a word.
    Words,
}

impl Spelling {
    fn of(json: &Value) -> Self {
        let model = &json["model"];
        let text = |key: &str| model[key].as_str().filter(|text| !text.is_empty()).map(str::to_string);
        let steps = || ["normalizer", "pre_tokenizer", "decoder"].map(|key| &json[key]);
        let spells_metaspace = || json["normalizer"].to_string().contains(METASPACE);
        if let Some(prefix) = text("continuing_subword_prefix") {
            Self::Prefix(prefix)
        } else if let Some(suffix) = text("end_of_word_suffix") {
            Self::Suffix(suffix)
        } else if steps().into_iter().any(|step| has_type(step, "ByteLevel")) {
            Self::ByteLevel
        } else if steps().into_iter().any(|step| has_type(step, "Metaspace"))
            || model["type"] == "Unigram"
            || spells_metaspace()
        {
            Self::Metaspace
        } else {
            Self::Words
        }
    }

    /// Whether a token starts a word, and whether the next one does.
    fn boundaries(&self, token: &str) -> (bool, bool) {
        match self {
            Self::ByteLevel => (
                token.starts_with(BYTE_LEVEL_SPACE) || token.starts_with(BYTE_LEVEL_BREAKS),
                // A lone space is no end: of a rare word it is the first piece.
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

/// Whether a step, or one of the steps that it is a sequence of, has this type.
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
        let byte_level = Spelling::of(&byte_level);
        assert_eq!(
            ["Ġword", "word", "Ċ", "Ġ", "ĊĊ"].map(|t| byte_level.boundaries(t)),
            [(true, false), (false, false), (true, true), (true, false), (true, true)]
        );
        let word_piece =
            Spelling::of(&json!({"model": {"type": "WordPiece", "continuing_subword_prefix": "##"}}));
        assert_eq!(["gard", "##en", ","].map(|t| word_piece.boundaries(t).0), [true, false, true]);
        let unigram =
            Spelling::of(&json!({"model": {"type": "Unigram"}, "pre_tokenizer": {"type": "Metaspace"}}));
        assert_eq!(["▁talo", "ssa", "▁"].map(|t| unigram.boundaries(t).0), [true, false, true]);
        let replaced = json!({"model": {"type": "BPE"}, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}});
        assert_eq!(Spelling::of(&replaced), Spelling::Metaspace);
        let suffix = Spelling::of(&json!({"model": {"type": "BPE", "end_of_word_suffix": "</w>"}}));
        assert_eq!(["gard", "en</w>"].map(|t| suffix.boundaries(t)), [(false, false), (false, true)]);
        assert_eq!(Spelling::of(&json!({"model": {"type": "WordLevel"}})), Spelling::Words);
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
        let (words, ids) =
            (tokenizer.word_boundaries().unwrap(), tokenizer.encode("the garden\nis red").unwrap());
        let id = |token: &str| tokenizer.id(token).unwrap();
        let as_they_are = tokenizer.encode_words(&["he", "", "d"]).unwrap();
        assert_eq!(as_they_are, [vec![id("h"), id("e")], vec![], vec![id("d")]]);
        let starts = |i: usize| i == 0 || words.starts_word(ids[i]) || words.ends_word(ids[i - 1]);
        // The newline stands for itself: `is` begins after it.
        assert_eq!((0..ids.len()).filter(|i| starts(*i)).collect::<Vec<_>>(), [0, 3, 10, 11, 13]);
        assert!(words.starts_word(1 << 20) && words.ends_word(1 << 20));
        let behind_blanks = tokenizer.for_words().unwrap();
        let blank = behind_blanks.id("Ġ").unwrap();
        let each = behind_blanks.encode_words(&["he", "", " he"]).unwrap();
        let he = [&[blank], &as_they_are[0][..]].concat();
        assert_eq!(each, [he.clone(), vec![], he.clone()]);
        assert_eq!(behind_blanks.encode("he").unwrap(), he, "the crate does the same");
        assert!(behind_blanks.asks_for_words());
        let again = Tokenizer::from_files(behind_blanks.files().to_vec(), "test").unwrap();
        assert_eq!(again.encode_words(&["he"]).unwrap(), [he]);
    }
}
