//! Damaged and malicious tokenizer.json files: each is either refused with an error that names it or can be
//! used, and a usable one gives the same ids in chunks as for the whole text.

use std::path::Path;

use rayon::prelude::*;
use serde_json::{Map, Value, json};

use super::{STORY, train_with};
use crate::tokenizer::{Tokenizer, encode};
use base::families::Family;
use base::rng::{Purpose, Stream};
use config::{TokenizerAlgorithm, TokenizerConfig};

/// Number of mutations per algorithm.
const MUTATIONS: u64 = 400;

/// Largest vocabulary that is checked entry by entry; larger ones, with one huge id, take long and show
/// nothing new.
const WALKED_MAX: usize = 1 << 16;

/// Draws one random number after the other.
struct Draw {
    stream: Stream,
    index: u64,
}

impl Draw {
    fn new(id: u64) -> Self {
        Self { stream: Stream::new(17, Purpose::Test, id), index: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.index += 1;
        self.stream.below(self.index, bound.max(1) as u64) as usize
    }

    fn one<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}

/// Values that fit nowhere, and some that fit in the wrong places.
fn hostile_value(draw: &mut Draw) -> Value {
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let sequence =
        (0..40).fold(json!({"type": "NFC"}), |inner, _| json!({"type": "Sequence", "normalizers": [inner]}));
    let values = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-1),
        json!(1),
        json!(1 << 24),
        json!(u32::MAX),
        json!(u64::from(u32::MAX) + 1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.5),
        json!(-1e308),
        json!(1e308),
        json!(""),
        json!(" "),
        json!("\n"),
        json!("▁"),
        json!("漢"),
        json!("\u{0}\u{10ffff}"),
        json!("x".repeat(100_000)),
        json!([]),
        json!({}),
        json!([["", 0]]),
        json!([[[], {}], "a b", 7]),
        nested,
        sequence,
    ];
    draw.one(&values).clone()
}

/// Whole steps that are valid but unusual.
fn hostile_step(draw: &mut Draw) -> (&'static str, Value) {
    let split = |pattern: Value, behavior: &str, invert: bool| json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert});
    let regex = |expression: &str| json!({"Regex": expression});
    let expression = *draw.one(&[
        "(",
        "[",
        "(a+)+$",
        "a{9999999}",
        "(((a{999}){999}){999})",
        "",
        "\\",
        "(?<=a*)b",
        "(?=a)",
        "\\p{Nope}",
        "x*",
    ]);
    let behavior =
        *draw.one(&["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Nonsense"]);
    let inverted = draw.below(2) == 0;
    let step = draw.below(16);
    match step {
        0..5 => ("pre_tokenizer", split(regex(expression), behavior, inverted)),
        5 => ("pre_tokenizer", split(json!({"String": draw.one(&["", " ", "a", "\n"])}), behavior, inverted)),
        6 => (
            "pre_tokenizer",
            split(regex(&format!("{}a{}", "(".repeat(5000), ")".repeat(5000))), behavior, inverted),
        ),
        7 => ("pre_tokenizer", json!({"type": "FixedLength", "length": draw.one(&[0u64, 1, u64::MAX])})),
        8 => (
            "pre_tokenizer",
            json!({"type": "Metaspace", "replacement": draw.one(&[" ", "a", "\n", "▁"]), "prepend_scheme": "always"}),
        ),
        9 => ("normalizer", json!({"type": "Replace", "pattern": regex(expression), "content": "aa"})),
        10 => (
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": draw.one(&["", "/////w==", "BAAAAP////8A", "CAAAAAAAAAAAAAAAAAA="])}),
        ),
        11 => ("normalizer", json!({"type": "Prepend", "prepend": "a ".repeat(1000)})),
        12 => (
            "decoder",
            json!({"type": "Strip", "content": "a", "start": draw.one(&[0, u64::MAX]), "stop": draw.one(&[1, 9, u64::MAX])}),
        ),
        13 => {
            ("decoder", json!({"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": true}))
        }
        14 => (
            "post_processor",
            json!({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": true, "use_regex": true}),
        ),
        _ => ("normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true})),
    }
}

/// A random value inside `json`, at any depth.
fn somewhere<'a>(json: &'a mut Value, draw: &mut Draw) -> &'a mut Value {
    let children = match json {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if children == 0 || draw.below(6) == 0 {
        return json;
    }
    let child = draw.below(children);
    match json {
        Value::Object(fields) => somewhere(fields.values_mut().nth(child).unwrap(), draw),
        Value::Array(items) => somewhere(&mut items[child], draw),
        _ => unreachable!("counted above"),
    }
}

/// A random key of an object.
fn some_key(fields: &Map<String, Value>, draw: &mut Draw) -> Option<String> {
    fields.keys().nth(draw.below(fields.len())).cloned()
}

/// Damages the vocabulary, the merges or the added tokens.
fn damage_ids(json: &mut Value, draw: &mut Draw) {
    let id =
        json!(draw.one(&[0, 1, 5, 300, 1 << 24, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX]));
    let kind = draw.below(4);
    if kind == 0
        && let Some(merges) = json["model"]["merges"].as_array_mut()
    {
        let place = draw.below(merges.len());
        merges.insert(
            place,
            draw.one(&[
                json!("nobody knows"),
                json!(["Ġ", "nothing"]),
                json!("a"),
                json!(["a", "b", "c"]),
                json!(["", ""]),
            ])
            .clone(),
        );
        return;
    }
    if kind == 1 {
        let token = json!({"id": id, "content": draw.one(&["<mask>", "a", "", " ", "new"]), "single_word": draw.below(2) == 0,
            "lstrip": draw.below(2) == 0, "rstrip": draw.below(2) == 0, "normalized": draw.below(2) == 0, "special": draw.below(2) == 0});
        let tokens = json["added_tokens"].as_array_mut().unwrap();
        let place = draw.below(tokens.len());
        tokens.insert(place, token);
        return;
    }
    match &mut json["model"]["vocab"] {
        Value::Object(vocab) => {
            let key = some_key(vocab, draw).unwrap();
            vocab.insert(key, id);
        }
        Value::Array(vocab) => {
            let place = draw.below(vocab.len());
            let duplicate = vocab[draw.below(vocab.len())].clone();
            let odd = [
                duplicate,
                json!(["", 0.0]),
                json!(["a b", -1.0]),
                json!(["abc", 1e308]),
                json!(["tuon", -1e308]),
                json!(["x"]),
            ];
            vocab[place] = draw.one(&odd).clone();
        }
        _ => {}
    }
}

/// A file with one to three kinds of damage.
fn mutate(bytes: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut json: Value = serde_json::from_slice(bytes).unwrap();
    let rounds = draw.below(3);
    let kind = draw.below(8);
    for _ in 0..=rounds {
        match kind {
            0 | 1 => damage_ids(&mut json, draw),
            2 | 3 => {
                let (key, step) = hostile_step(draw);
                json[key] = step;
            }
            4 | 5 => *somewhere(&mut json, draw) = hostile_value(draw),
            6 => match somewhere(&mut json, draw) {
                Value::Object(fields) => drop(some_key(fields, draw).map(|key| fields.remove(&key))),
                Value::Array(items) if !items.is_empty() => drop(items.remove(draw.below(items.len()))),
                other => *other = Value::Null,
            },
            _ => {}
        }
        if !json.is_object() {
            break;
        }
    }
    let mut bytes = json.to_string().into_bytes();
    if kind == 7 {
        damage_bytes(&mut bytes, draw);
    }
    bytes
}

fn damage_bytes(bytes: &mut Vec<u8>, draw: &mut Draw) {
    let at = draw.below(bytes.len());
    match draw.below(4) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << draw.below(8),
        // A duplicate key: the second one with another value.
        2 => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let key = *draw.one(&[
                "model",
                "type",
                "vocab",
                "merges",
                "normalizer",
                "pre_tokenizer",
                "content",
                "id",
                "special",
            ]);
            let value = hostile_value(draw);
            *bytes = text
                .replacen(&format!("\"{key}\":"), &format!("\"{key}\":{value},\"{key}\":"), 1)
                .into_bytes();
        }
        _ => bytes[at] = *draw.one(b"{}[]\",:0-9eE\\u\0\xff"),
    }
}

/// Returns true if the same text always has the same ids.
fn is_steady(json: &[u8]) -> bool {
    let model = serde_json::from_slice::<Value>(json).map(|json| json["model"].clone()).unwrap_or_default();
    ["dropout", "alpha"].iter().all(|key| model[key].is_null())
}

/// Loads a file, uses the tokenizer if it loads, and returns true if it did.
fn survives(path: &Path, json: &[u8]) -> bool {
    std::fs::write(path, json).unwrap();
    let tokenizer = match Tokenizer::load(path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            let message = format!("{error:#}");
            assert!(message.contains(&path.display().to_string()), "{message}");
            return false;
        }
    };
    let texts = [STORY, "a <mask> b\n\nab  [MASK]\u{a0}漢字 \u{10ffff}", "", &"aaab".repeat(40)];
    for text in texts {
        let _ = tokenizer.encode_with_offsets(text);
        let at_once = encode(&tokenizer.plain, text);
        let in_chunks = tokenizer.encode_corpus(&[text]);
        if let (Ok(at_once), Ok(mut in_chunks), true) = (&at_once, in_chunks, is_steady(json)) {
            assert_eq!(&in_chunks.remove(0), at_once, "{text:?} with {}", String::from_utf8_lossy(json));
        }
        for ids in [tokenizer.encode(text), at_once].into_iter().flatten() {
            let _ = tokenizer.decode(&ids, true);
        }
    }
    let _ = tokenizer.decode(&[0, 1, u32::MAX, tokenizer.vocab_size() as u32], false);
    if tokenizer.vocab_size() < WALKED_MAX {
        let _ = (tokenizer.word_boundaries(), tokenizer.ordinary_ids());
    }
    true
}

fn tokenizer_json(algorithm: TokenizerAlgorithm) -> Vec<u8> {
    let config = TokenizerConfig { algorithm, vocab_size: 420, ..TokenizerConfig::default() };
    train_with(Family::ROBERTA, &config).tokenizer.files()[0].1.clone()
}

#[test]
fn damaged_files_are_refused_by_name_or_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in
        [TokenizerAlgorithm::ByteLevelBpe, TokenizerAlgorithm::WordPiece, TokenizerAlgorithm::Unigram]
    {
        let json = tokenizer_json(algorithm);
        let loaded = (0..MUTATIONS).into_par_iter().filter(|number| {
            let path = folder.path().join(format!("{algorithm:?}-{number}-tokenizer.json"));
            survives(&path, &mutate(&json, &mut Draw::new(*number)))
        });
        let loaded = loaded.count() as u64;
        assert!(loaded > MUTATIONS / 10 && loaded < MUTATIONS, "{algorithm:?}: {loaded} of {MUTATIONS} load");
    }
}

#[test]
fn what_makes_the_crate_panic_is_an_error() {
    let mut json: Value = serde_json::from_slice(&tokenizer_json(TokenizerAlgorithm::ByteLevelBpe)).unwrap();
    json["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0});
    json["decoder"] = json!({"type": "Strip", "content": "a", "start": 0, "stop": 9});
    let tokenizer =
        Tokenizer::from_files(vec![("tokenizer.json".to_string(), json.to_string().into_bytes())], "here")
            .unwrap();
    let errors = [
        tokenizer.encode("aa").unwrap_err(),
        tokenizer.encode_corpus(&["aa"]).unwrap_err(),
        tokenizer.decode(&[tokenizer.id("a").unwrap()], false).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("its parts contradict each other"), "{error}");
    }
}

#[test]
fn bombs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let replace = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let whole = json!({"Sequence": {"id": "A", "type_id": 0}});
    let mut json: Value = serde_json::from_slice(&tokenizer_json(TokenizerAlgorithm::ByteLevelBpe)).unwrap();
    for (key, bomb) in [
        ("normalizer", json!({"type": "Sequence", "normalizers": vec![replace; 60]})),
        ("normalizer", json!({"type": "Sequence", "normalizers": vec![json!({"type": "ByteLevel"}); 60]})),
        ("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="})),
        (
            "post_processor",
            json!({"type": "TemplateProcessing", "single": vec![whole; 5000], "pair": [], "special_tokens": {}}),
        ),
    ] {
        let before = std::mem::replace(&mut json[key], bomb);
        assert!(!survives(&path, json.to_string().as_bytes()), "{key}");
        json[key] = before;
    }
    assert!(survives(&path, json.to_string().as_bytes()));
    json["model"]["vocab"]["a"] = json!(u32::MAX);
    assert!(!survives(&path, json.to_string().as_bytes()));
    let mut json: Value = serde_json::from_slice(&tokenizer_json(TokenizerAlgorithm::Unigram)).unwrap();
    json["model"]["vocab"][300] = json!(["x".repeat(1 << 20), -1.0]);
    assert!(!survives(&path, json.to_string().as_bytes()));
}
