//! WordPiece: a word is spelled as the longest entry that it begins with, followed by the longest `##` entry
//! that its rest begins with, and so on.
//!
//! The entries are learnt as merges of a BPE, as in the `tokenizers` crate (the score of Schuster & Nakajima,
//! ICASSP 2012, was never published with BERT).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::tokenizer::bpe;
use crate::tokenizer::train::{Learned, Task};

/// Number of characters that are in the alphabet however rare they are, if there is space for them.
const ALPHABET_LEAST: usize = 1000;

/// Share of the text's characters that the alphabet should contain (SentencePiece's `character_coverage`).
const COVERAGE: f64 = 0.9995;

/// Longer words are unknown (BERT's limit).
const WORD_CHARACTERS_MAX: usize = 100;

/// Prefix of an entry that does not begin a word.
const PREFIX: &str = "##";

type Words = Vec<(Box<str>, u64)>;

/// Learns merges from normalized words.
pub(super) fn learn(task: Task, mut progress: impl FnMut(usize)) -> Learned {
    let Task { words, names, options, vocab_size } = task;
    let special: Vec<String> = names.order.iter().map(ToString::to_string).collect();
    let units = ascii(options.lowercase);
    let room = vocab_size.saturating_sub(special.len() + units.len());
    let mut learn = |characters: &BTreeSet<char>| {
        let known: Vec<_> =
            words.iter().filter(|(word, _)| word.chars().all(|c| characters.contains(&c))).collect();
        let mut units = units.clone();
        units.extend(known.iter().flat_map(|(word, _)| units_of(word)));
        let spellings: Vec<String> = special.iter().cloned().chain(units).collect();
        let ids: HashMap<&str, u32> = spellings.iter().map(String::as_str).zip(0..).collect();
        let words = known
            .iter()
            .filter(|(word, _)| word.chars().count() <= WORD_CHARACTERS_MAX)
            .map(|(word, count)| bpe::Word {
                symbols: units_of(word).filter_map(|unit| ids.get(unit.as_str()).copied()).collect(),
                count: *count,
            })
            .collect();
        bpe::learn(words, spellings, PREFIX, vocab_size, options.min_frequency, &mut progress).spellings
    };
    // At most half of the entries are characters, unless the words do not need all of the others.
    let limit = Limit { room: room / 2, characters: usize::MAX, coverage: COVERAGE };
    let limit = match options.limit_alphabet {
        Some(characters) => Limit { room, characters, coverage: 1.0 },
        None => limit,
    };
    let mut characters = alphabet(&words, &units, &limit);
    let mut spellings = learn(&characters);
    let left = vocab_size.saturating_sub(spellings.len());
    let whole = Limit { room: limit.room + left, coverage: 1.0, ..limit };
    let more = alphabet(&words, &units, &whole);
    if left > 0 && more.len() > characters.len() {
        spellings = learn(&more);
        characters = more;
    }
    let unknown: Vec<_> =
        words.iter().filter(|(word, _)| !word.chars().all(|c| characters.contains(&c))).collect();
    names.fill(&mut spellings, options.filled_size());
    let vocab: serde_json::Map<String, Value> =
        spellings.iter().zip(0u32..).map(|(s, id)| (s.clone(), id.into())).collect();
    // A family's own class puts its special tokens around a text; the general class reads tokenizer.json.
    let class = options.family.word_piece_class.unwrap_or("PreTrainedTokenizerFast");
    let more = json!({
        "do_lower_case": options.lowercase, "strip_accents": options.strip_accents, "tokenize_chinese_chars": true,
        "do_basic_tokenize": true, "never_split": null,
    });
    let mut notes = Vec::new();
    if !unknown.is_empty() {
        let seen: u64 = unknown.iter().map(|(_, count)| count).sum();
        let words = unknown.len();
        let kept = characters.len();
        notes.push(format!(
            "{words} words (seen {seen} times) have characters that are not among the {kept} of the alphabet; they are \
             unknown (`tokenizer.vocab_size` and `limit_alphabet` say how many there may be)"
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

/// The entries of printable ASCII, in any case: signs are separate words, letters and digits also occur
/// inside of words.
fn ascii(lowercase: bool) -> BTreeSet<String> {
    let printable = ('!'..='~').filter(|c| !(lowercase && c.is_ascii_uppercase()));
    let units = printable.flat_map(|c| {
        let inside = c.is_ascii_alphanumeric().then(|| format!("{PREFIX}{c}"));
        [Some(c.to_string()), inside].into_iter().flatten()
    });
    units.collect()
}

/// The count of a character, and the entries that it needs: at the beginning of words, and inside.
#[derive(Default)]
struct Character {
    count: u64,
    begins: bool,
    continues: bool,
}

/// Limits on the size of an alphabet.
struct Limit {
    /// Most entries for characters.
    room: usize,
    /// Most characters.
    characters: usize,
    /// Share of the text to cover: rarer characters beyond it are left out if there are [`ALPHABET_LEAST`]
    /// already.
    coverage: f64,
}

/// The most frequent characters of the words (of equally frequent ones the smaller), and those of `units`.
fn alphabet(words: &Words, units: &BTreeSet<String>, limit: &Limit) -> BTreeSet<char> {
    let mut characters: BTreeMap<char, Character> = BTreeMap::new();
    for (word, count) in words {
        for (place, c) in word.chars().enumerate() {
            let character = characters.entry(c).or_default();
            character.count += count;
            character.begins |= place == 0;
            character.continues |= place > 0;
        }
    }
    let all: u64 = characters.values().map(|character| character.count).sum();
    let mut by_count: Vec<(char, Character)> = characters.into_iter().collect();
    by_count.sort_by_key(|(_, character)| Reverse(character.count));
    let mut kept: BTreeSet<char> = units.iter().filter_map(|unit| unit.chars().last()).collect();
    let mut taken = 0;
    let mut covered = 0;
    let mut known = 0;
    for (c, Character { count, begins, continues }) in by_count {
        let spellings = [(begins, c.to_string()), (continues, format!("{PREFIX}{c}"))];
        let more = spellings.iter().filter(|(is_used, unit)| *is_used && !units.contains(unit)).count();
        let is_wanted = covered as f64 <= limit.coverage * all as f64 || known < ALPHABET_LEAST;
        let fits = known < limit.characters && taken + more <= limit.room;
        if more == 0 || is_wanted && fits {
            kept.insert(c);
            taken += more;
            covered += count;
            known += 1;
        }
    }
    kept
}

/// The characters of a word as entries: `t ##a ##l ##o`.
fn units_of(word: &str) -> impl Iterator<Item = String> {
    word.chars().enumerate().map(|(place, c)| if place == 0 { c.to_string() } else { format!("{PREFIX}{c}") })
}
