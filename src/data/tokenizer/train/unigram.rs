//! A unigram language model of pieces, as in SentencePiece; characters that no piece spells are spelled in
//! bytes.
//!
//! Each word begins with `▁` (U+2581), which represents the blank before it, even if a text or a line begins
//! without one. Decoding returns every text, except that `▁` itself is decoded as a blank, and one blank at
//! the beginning of a line is lost.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::tokenizer::train::pieces::Wanted;
use crate::tokenizer::train::{Learned, Task, pieces};

/// Share of the text's characters that get their own pieces (SentencePiece's `character_coverage`).
const COVERAGE: f64 = 0.9995;

/// The score of entries with which no text may be spelled, even if it contains them: `<s>`, `<0x41>`.
/// Spelling the longest of them in characters costs far less.
const NEVER: f64 = -1000.0;

/// Scores are multiples of 1/4096: their sums are exact in any order and every parser reads their decimals
/// exactly, so that ties between spellings are the same everywhere.
const SCORE_STEPS: f64 = 4096.0;

/// Learns pieces from words that begin with `▁`.
pub(super) fn learn(task: Task, progress: impl FnMut(usize)) -> Learned {
    let Task { words, names, options, vocab_size } = task;
    let mut reserved: Vec<String> = names.order.iter().map(ToString::to_string).collect();
    reserved.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    let room = vocab_size - reserved.len();
    let characters = alphabet(&words, room);
    let wanted = Wanted {
        characters: &characters,
        reserved: &reserved,
        pieces: room,
        min_frequency: options.min_frequency,
    };
    let learned = pieces::learn(&words, &wanted, progress);
    let known = reserved.len() + learned.len();
    let unused = (known..options.filled_size()).map(|id| names.unused(id - known));
    let mut vocab: Vec<Value> = reserved.iter().map(|name| json!([name, NEVER])).collect();
    vocab.extend(
        learned.iter().map(|(text, score)| json!([text, (score * SCORE_STEPS).round() / SCORE_STEPS])),
    );
    vocab.extend(unused.map(|name| json!([name, NEVER])));
    Learned {
        config: names.config("PreTrainedTokenizerFast", options.model_max_length, json!({})),
        files: Vec::new(),
        model: json!({"type": "Unigram", "unk_id": names.id(names.unk), "vocab": vocab, "byte_fallback": true}),
        notes: Vec::new(),
    }
}

/// Printable ASCII and the character for a space, followed by the most frequent characters until enough of
/// the text is covered.
fn alphabet(words: &[(Box<str>, u64)], room: usize) -> Vec<char> {
    let mut counts: BTreeMap<char, u64> = BTreeMap::new();
    for (word, count) in words {
        word.chars().for_each(|c| *counts.entry(c).or_default() += count);
    }
    let all: u64 = counts.values().sum();
    let mut characters: Vec<char> = ('!'..='~').chain(['▁']).collect();
    let mut covered: u64 = characters.iter().filter_map(|c| counts.remove(c)).sum();
    let mut rest: Vec<(char, u64)> = counts.into_iter().collect();
    rest.sort_by_key(|(_, count)| Reverse(*count));
    for (character, count) in rest {
        if covered as f64 >= COVERAGE * all as f64 || characters.len() >= room.max(1) {
            break;
        }
        characters.push(character);
        covered += count;
    }
    characters
}
