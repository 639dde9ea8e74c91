//! The most probable pieces of one word by a unigram model, without building strings: equivalent to the model
//! of the `tokenizers` crate where pieces spell the whole word, and used only there.

use serde_json::Value;

use crate::tokenizer::lattice::{Lattice, NO_PIECE, Piece, Trie};

/// The blank before a word.
const BLANK: char = '▁';

/// Unigram model of words that begin with `▁`.
pub(super) struct Unigram {
    trie: Trie,
    unk_id: Option<u64>,
}

/// Buffers that are reused for each word.
#[derive(Default)]
pub(super) struct Buffers {
    word: String,
    lattice: Lattice,
}

impl Unigram {
    /// The model of a tokenizer.json; `None` if its vocabulary is unusual.
    pub(super) fn new(model: &Value) -> Option<Self> {
        if model["type"].as_str() != Some("Unigram") {
            return None;
        }
        let pieces: Vec<Piece> = model["vocab"].as_array()?.iter().map(piece).collect::<Option<_>>()?;
        Some(Self { trie: Trie::from_vocabulary(&pieces)?, unk_id: model["unk_id"].as_u64() })
    }

    /// Appends the ids of a normalized chunk: a word, a blank and a word, a line feed, or a line feed and a word.
    /// Returns false, and appends nothing, if `chunk` is anything else or no pieces spell it.
    pub(super) fn append_chunk(&self, chunk: &str, buffers: &mut Buffers, ids: &mut Vec<u32>) -> bool {
        let (line, word) = match chunk.strip_prefix('\n') {
            Some(word) => ("\n", word),
            None => ("", chunk.strip_prefix(' ').unwrap_or(chunk)),
        };
        if chunk == " " || word.contains([' ', '\n', BLANK]) {
            return false;
        }
        let before = ids.len();
        let mut words = [line, word].into_iter().filter(|word| !word.is_empty());
        let is_done = words.all(|word| self.append_word(word, buffers, ids));
        if !is_done {
            ids.truncate(before);
        }
        is_done
    }

    /// Appends the ids of `word` with a blank before it; false if no pieces spell it.
    fn append_word(&self, word: &str, buffers: &mut Buffers, ids: &mut Vec<u32>) -> bool {
        let Buffers { word: with_blank, lattice } = buffers;
        with_blank.clear();
        with_blank.push(BLANK);
        with_blank.push_str(word);
        let first = ids.len();
        ids.extend(lattice.best(with_blank, &self.trie, NO_PIECE));
        ids[first..].reverse();
        // The crate joins unknown characters and spells them in bytes.
        ids[first..].iter().all(|id| *id != NO_PIECE && Some(u64::from(*id)) != self.unk_id)
    }
}

/// A piece and its score from an entry of the vocabulary; `None` if it is none.
fn piece(entry: &Value) -> Option<Piece> {
    let score = entry.get(1)?.as_f64().filter(|score| score.is_finite())?;
    Some((entry.get(0)?.as_str()?.to_string(), score))
}
