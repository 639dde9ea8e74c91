//! Words of BERT and the pieces of a WordPiece model that spell them, without building strings: equivalent to
//! the pre-tokenizer and the model of the `tokenizers` crate for letters, digits and signs of ASCII, and used only
//! for those.

use serde_json::{Map, Value};

use crate::tokenizer::lattice::{Piece, Trie};

/// WordPiece after BERT's splitting into words.
pub(super) struct WordPiece {
    /// Pieces at the beginning of a word: all of them.
    first: Pieces,
    /// Pieces after the beginning of a word, without their prefix.
    next: Pieces,
    unk_id: u32,
    word_characters_max: usize,
}

struct Pieces {
    trie: Trie,
    /// The id of each piece.
    ids: Vec<u32>,
}

impl Pieces {
    /// The tokens of `vocab` that begin with `prefix`, without it; `None` if an id or a length is unusual.
    fn new(vocab: &Map<String, Value>, prefix: &str) -> Option<Self> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut ids = Vec::new();
        for (token, id) in vocab {
            if let Some(text) = token.strip_prefix(prefix).filter(|text| !text.is_empty()) {
                pieces.push((text.to_string(), 0.0));
                ids.push(u32::try_from(id.as_u64()?).ok()?);
            }
        }
        Some(Self { trie: Trie::from_vocabulary(&pieces)?, ids })
    }
}

impl WordPiece {
    /// The model of a tokenizer.json; `None` if any of its settings is unusual.
    pub(super) fn new(model: &Value) -> Option<Self> {
        if model["type"].as_str() != Some("WordPiece") {
            return None;
        }
        let vocab = model["vocab"].as_object()?;
        let prefix = model["continuing_subword_prefix"].as_str()?;
        let unk_id = vocab.get(model["unk_token"].as_str()?)?.as_u64()?;
        Some(Self {
            first: Pieces::new(vocab, "")?,
            next: Pieces::new(vocab, prefix)?,
            unk_id: u32::try_from(unk_id).ok()?,
            word_characters_max: usize::try_from(model["max_input_chars_per_word"].as_u64()?).ok()?,
        })
    }

    /// Appends the ids of a normalized chunk. Returns false, and appends nothing, if it contains characters that
    /// may be punctuation outside ASCII.
    pub(super) fn append_chunk(&self, chunk: &str, ids: &mut Vec<u32>) -> bool {
        if chunk.chars().any(|c| !c.is_ascii() && !c.is_alphanumeric() && !c.is_whitespace()) {
            return false;
        }
        for word in chunk.split(char::is_whitespace) {
            let mut rest = word;
            while let Some(first) = rest.chars().next() {
                let end = if first.is_ascii_punctuation() {
                    1
                } else {
                    rest.find(|c: char| c.is_ascii_punctuation()).unwrap_or(rest.len())
                };
                let (word, more) = rest.split_at(end);
                self.append_word(word, ids);
                rest = more;
            }
        }
        true
    }

    /// Appends the ids of the longest piece that begins `word`, of the longest that begins the rest, and so on;
    /// that of the unknown token if the pieces do not spell the whole word.
    fn append_word(&self, word: &str, ids: &mut Vec<u32>) {
        let before = ids.len();
        let mut rest = if word.chars().count() > self.word_characters_max { None } else { Some(word) };
        let mut pieces = &self.first;
        while let Some(text) = rest.filter(|text| !text.is_empty()) {
            rest = pieces.trie.longest(text).map(|(bytes, number)| {
                ids.push(pieces.ids[number as usize]);
                &text[bytes..]
            });
            pieces = &self.next;
        }
        if rest.is_none() {
            ids.truncate(before);
            ids.push(self.unk_id);
        }
    }
}
