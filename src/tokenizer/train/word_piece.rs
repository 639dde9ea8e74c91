//! WordPiece: the longest entry that a word begins with, then the longest `##` entry that what is left begins
//! with.
//!
//! The entries are learnt as merges of a BPE, as the `tokenizers` crate learns them (the score of Schuster &
//! Nakajima, ICASSP 2012, was never published with BERT).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;

use serde_json::Value;
use serde_json::json;

use crate::tokenizer::bpe;
use crate::tokenizer::train::Learned;
use crate::tokenizer::train::Task;

/// Most characters of the alphabet (the usual limit for WordPiece); words with others are unknown.
const ALPHABET_MAX: usize = 1000;

/// Longer words are unknown (BERT's limit).
const WORD_CHARACTERS_MAX: usize = 100;

/// What stands before an entry that does not begin a word.
const PREFIX: &str = "##";

type Words = Vec<(Box<str>, u64)>;

/// Learns merges from normalized words.
pub(super) fn learn(task: Task, progress: impl FnMut(usize)) -> Learned {
    let Task { words, names, options, vocab_size } = task;
    let mut spellings: Vec<String> = names.order.iter().map(ToString::to_string).collect();
    // Each character may need two entries.
    let characters = alphabet(&words, ALPHABET_MAX.min(vocab_size.saturating_sub(spellings.len()) / 2));
    let (known, unknown): (Words, Words) =
        words.into_iter().partition(|(word, _)| word.chars().all(|c| characters.contains(&c)));
    let units: BTreeSet<String> = known.iter().flat_map(|(word, _)| units_of(word)).collect();
    spellings.extend(units);
    let ids: HashMap<&str, u32> = spellings.iter().map(String::as_str).zip(0..).collect();
    let words = known
        .iter()
        .filter(|(word, _)| word.chars().count() <= WORD_CHARACTERS_MAX)
        .map(|(word, count)| bpe::Word {
            symbols: units_of(word).filter_map(|unit| ids.get(unit.as_str()).copied()).collect(),
            count: *count,
        })
        .collect();
    let mut spellings =
        bpe::learn(words, spellings, PREFIX, vocab_size, options.min_frequency, progress).spellings;
    names.fill(&mut spellings, options.filled_size());
    let vocab: serde_json::Map<String, Value> =
        spellings.iter().zip(0u32..).map(|(s, id)| (s.clone(), id.into())).collect();
    // A family's own class puts its special tokens around a text; the general one reads tokenizer.json.
    let class = options.family.word_piece_class.unwrap_or("PreTrainedTokenizerFast");
    let more = json!({
        "do_lower_case": options.lowercase, "strip_accents": options.strip_accents, "tokenize_chinese_chars": true,
        "do_basic_tokenize": true, "never_split": null,
    });
    let mut notes = Vec::new();
    if !unknown.is_empty() {
        let seen: u64 = unknown.iter().map(|(_, count)| count).sum();
        let (words, kept) = (unknown.len(), characters.len());
        notes.push(format!(
            "{words} words (seen {seen} times) have characters that are not among the {kept} most frequent; they are unknown"
        ));
    }
    Learned {
        config: names.config(class, options.model_max_length, more),
        files: vec![("vocab.txt".to_string(), (spellings.join("\n") + "\n").into_bytes())],
        model: json!({
            "type": "WordPiece", "unk_token": names.unk, "continuing_subword_prefix": PREFIX,
            "max_input_chars_per_word": WORD_CHARACTERS_MAX, "vocab": vocab,
        }),
        notes,
    }
}

/// The `most` most frequent characters; of equals, the smaller ones.
fn alphabet(words: &Words, most: usize) -> BTreeSet<char> {
    let mut counts: BTreeMap<char, u64> = BTreeMap::new();
    for (word, count) in words {
        word.chars().for_each(|c| *counts.entry(c).or_default() += count);
    }
    let mut counts: Vec<(char, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.into_iter().take(most).map(|(c, _)| c).collect()
}

/// The characters of a word as entries: `t ##a ##l ##o`.
fn units_of(word: &str) -> impl Iterator<Item = String> {
    word.chars().enumerate().map(|(place, c)| if place == 0 { c.to_string() } else { format!("{PREFIX}{c}") })
}
