//! Texts encoded in chunks, compared with the `tokenizers` crate on the whole text: all characters, difficult
//! mixes, real pages.

use std::path::PathBuf;
use std::sync::LazyLock;

use proptest::prelude::*;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tokenizer::prefix::unigram_words;
use base::fs::testing::real_data;

/// A tokenizer of the crate, the tokenizer without the blank removed by [`take_blank`], and the fast path.
type Both = (tokenizers::Tokenizer, tokenizers::Tokenizer, Fast);

/// A pipeline over a small vocabulary that has most of ASCII, some words and some blanks as tokens.
fn tokenizer(normalizer: &Value, pre_tokenizer: &Value, model: &Value) -> Both {
    let mut json = json!({
        "version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": null, "decoder": null, "model": model,
    });
    let inner = crate_tokenizer(&json);
    let adds_blank = take_blank(&mut json);
    (inner, crate_tokenizer(&json), Fast::new(&json, adds_blank))
}

/// The crate's tokenizer, which encodes special tokens in a text as text.
fn crate_tokenizer(json: &Value) -> tokenizers::Tokenizer {
    let mut inner: tokenizers::Tokenizer = json.to_string().parse().unwrap();
    inner.set_encode_special_tokens(true);
    inner
}

fn byte_level_model() -> Value {
    let mut vocab: Vec<String> = byte_bpe::byte_characters().iter().map(char::to_string).collect();
    let mut merges = Vec::new();
    for merge in [
        "Ġ a",
        "Ġ Ġ",
        "ĠĠ ĠĠ",
        "Ġ Ċ",
        "Ċ Ċ",
        "a b",
        "b a",
        "ab ab",
        "' s",
        "Ã ¤",
        "Ã¤ Ã¤",
        "Ġa ab",
        ". .",
        "Ġ .",
        "Ġ1 2",
        "Ġ 1",
        "Ì ģ",
        "a Ìģ",
    ] {
        vocab.push(merge.replace(' ', ""));
        merges.push(merge);
    }
    // A merge may precede the merges that make its parts.
    let vocab: serde_json::Map<String, Value> =
        vocab.into_iter().zip(0u32..).map(|(token, id)| (token, id.into())).collect();
    json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges})
}

fn word_piece_model() -> Value {
    let mut vocab = vec!["[UNK]".to_string(), "aab".into(), "##ab".into(), "##aba".into(), "漢".into()];
    for c in (0x21..0x7f).chain(0xc0..0x250).filter_map(char::from_u32) {
        vocab.extend([c.to_string(), format!("##{c}")]);
    }
    let vocab: serde_json::Map<String, Value> =
        vocab.into_iter().zip(0u32..).map(|(token, id)| (token, id.into())).collect();
    json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20, "vocab": vocab})
}

fn unigram_model() -> Value {
    let mut vocab = vec![
        json!(["<unk>", 0.0]),
        json!(["▁", -3.0]),
        json!(["▁a", -4.0]),
        json!(["ab", -5.0]),
        json!(["a\n", -5.5]),
    ];
    vocab.extend(
        (0x20..0x7f)
            .chain(0xc0..0x250)
            .filter_map(char::from_u32)
            .map(|c| json!([c.to_string(), -8.0 - f64::from(c as u32) / 1e4])),
    );
    vocab.extend((0..=255).map(|byte| json!([format!("<0x{byte:02X}>"), -100.0])));
    json!({"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": true})
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

fn byte_level_with_blank() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
}

fn metaspace(scheme: &str) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true})
}

fn by_lines(metaspace: &Value) -> Value {
    let split =
        json!({"type": "Split", "pattern": {"String": "\n"}, "behavior": "Isolated", "invert": false});
    json!({"type": "Sequence", "pretokenizers": [split, metaspace]})
}

fn sequence(names: &[&str]) -> Value {
    json!({"type": "Sequence", "normalizers": names.iter().map(|name| json!({"type": name})).collect::<Vec<_>>()})
}

fn bert(lowercase: bool, clean: bool) -> Value {
    json!({"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": true, "strip_accents": lowercase, "lowercase": lowercase})
}

/// Every kind of pipeline that allows cuts.
static CUT: LazyLock<Vec<Both>> = LazyLock::new(|| {
    vec![
        tokenizer(&Value::Null, &byte_level(), &byte_level_model()),
        tokenizer(&json!({"type": "NFC"}), &byte_level(), &byte_level_model()),
        tokenizer(&sequence(&["NFKC", "Lowercase"]), &byte_level(), &byte_level_model()),
        tokenizer(
            &sequence(&["NFD", "StripAccents", "Lowercase", "NFC"]),
            &byte_level(),
            &byte_level_model(),
        ),
        tokenizer(&bert(true, true), &json!({"type": "BertPreTokenizer"}), &word_piece_model()),
        tokenizer(&bert(false, false), &json!({"type": "BertPreTokenizer"}), &word_piece_model()),
        tokenizer(
            &sequence(&["NFKD", "StripAccents"]),
            &json!({"type": "WhitespaceSplit"}),
            &word_piece_model(),
        ),
        tokenizer(&Value::Null, &json!({"type": "Whitespace"}), &word_piece_model()),
        tokenizer(&Value::Null, &metaspace("never"), &unigram_model()),
        tokenizer(&sequence(&["NFD", "StripAccents"]), &metaspace("always"), &unigram_model()),
        tokenizer(&json!({"type": "NFKC"}), &metaspace("first"), &unigram_model()),
        tokenizer(&sequence(&["Lowercase"]), &by_lines(&metaspace("never")), &unigram_model()),
        tokenizer(&Value::Null, &by_lines(&metaspace("always")), &unigram_model()),
        tokenizer(&sequence(&["NFD", "StripAccents"]), &unigram_words(), &unigram_model()),
        tokenizer(&sequence(&["Lowercase"]), &unigram_words(), &unigram_model()),
        tokenizer(&Value::Null, &unigram_words(), &unigram_model()),
        tokenizer(&Value::Null, &byte_level_with_blank(), &byte_level_model()),
        tokenizer(
            &sequence(&["NFD", "StripAccents", "Lowercase", "NFC"]),
            &byte_level_with_blank(),
            &byte_level_model(),
        ),
    ]
});

fn assert_same(text: &str) {
    (0..CUT.len()).for_each(|number| assert_same_with(number, text));
}

fn assert_same_with(number: usize, text: &str) {
    let (inner, plain, fast) = &CUT[number];
    assert!(fast.cuts.is_some(), "pipeline {number} is cut");
    assert_eq!(
        fast.encode(plain, text).unwrap(),
        encode(inner, text).unwrap(),
        "pipeline {number}: {text:?}"
    );
}

/// Of this number of blocks of 64 characters, testing one is enough: all ideographs, syllables and
/// private-use characters behave the same, and most of the planes from U+20000 on have no characters.
fn one_of(first: u32) -> u32 {
    let is_special = matches!(first, 0x2_f800..0x2_fa40 | 0xe_0000..0xe_1000);
    match first {
        0x3400..0xa000 | 0xac00..0xd800 | 0xe000..0xf900 | 0x1_7000..0x1_8d00 => 16,
        0x2_0000.. if !is_special => 128,
        _ => 1,
    }
}

#[test]
fn every_character_next_to_blanks() {
    let blocks: Vec<u32> =
        (0..=0x0010_ffff).step_by(64).filter(|first| first / 64 % one_of(*first) == 0).collect();
    // All pipelines for the scripts and signs in daily use, every sixth in turn for the others.
    blocks.par_iter().enumerate().for_each(|(block, first)| {
        let some = (*first..first + 64).filter_map(char::from_u32);
        let text = some.map(|c| format!("a{c} b\n{c} {c}{c} x")).collect::<Vec<_>>().concat();
        let is_used = matches!(*first, 0..0x3400 | 0xf900..0x1_0000);
        let pipelines = (0..CUT.len()).filter(|number| is_used || number % 6 == block % 6);
        pipelines.for_each(|number| assert_same_with(number, &text));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nasty_mixes(text in "[ \\t\\n\\r\u{a0}\u{3000}\u{85}\u{2028}\u{ad}\u{feff}\u{0}\u{fffd}▁a'sbBäÄİßΣ１12½,.!\u{301}\u{308}\u{345}\u{fdfa}漢\u{2f800}🎶\u{200d}<0x4>-]{0,40}") {
        assert_same(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn long_words_and_few_letters(text in "[ab' .]{0,400}", times in 1usize..40) {
        assert_same(&text.replace(' ', ""));
        assert_same(&text);
        assert_same(&format!("{} {}", "ab".repeat(times), text));
    }
}

/// Scores of a few different values, so that many spellings have the same score.
#[test]
fn among_equal_spellings_the_choice_is_the_crates() {
    let texts = ["a", "b", "aa", "ab", "ba", "bb", "aab", "bba", "abab", "▁", "▁a", "▁ab", "<unk>"];
    let vocab: Vec<Value> = texts.iter().map(|text| json!([text, -(text.len() as f64)])).collect();
    let model = json!({"type": "Unigram", "unk_id": 12, "vocab": vocab, "byte_fallback": false});
    let (inner, plain, fast) = tokenizer(&Value::Null, &unigram_words(), &model);
    let mut word = 1u32;
    for number in 0..2000 {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let letters = (0..number % 24).map(|bit| if word >> bit & 1 == 0 { 'a' } else { 'b' });
        let text = format!(" {}", letters.collect::<String>());
        assert_eq!(fast.encode(&plain, &text).unwrap(), encode(&inner, &text).unwrap(), "{text}");
    }
}

#[test]
fn own_models_encode_the_usual_pipelines() {
    let own = |pre_tokenizer: &Value, model: &Value| tokenizer(&Value::Null, pre_tokenizer, model).2.model;
    assert!(matches!(own(&byte_level(), &byte_level_model()), Some(OwnModel::ByteBpe(_))));
    let mut model = unigram_model();
    model["vocab"][4] = json!(["\n", -6.0]);
    for pre_tokenizer in [unigram_words(), by_lines(&metaspace("always"))] {
        let Some(OwnModel::Unigram(unigram)) = own(&pre_tokenizer, &model) else {
            panic!("{pre_tokenizer}");
        };
        for (chunk, is_own) in [(" ab", true), ("\nab", true), ("\n", true), ("  ab", false), (" 漢", false)]
        {
            let mut ids = vec![7];
            assert_eq!(unigram.append_chunk(chunk, &mut unigram::Buffers::default(), &mut ids), is_own);
            assert_eq!((ids[0], ids.len() > 1), (7, is_own), "{chunk:?}");
        }
    }
    let words = json!({"type": "BertPreTokenizer"});
    let mut pieces = word_piece_model();
    let Some(OwnModel::WordPiece(own_pieces)) = own(&words, &pieces) else { panic!("{words}") };
    for (chunk, is_own) in [(" aab", true), ("\na.b", true), ("漢", true), ("a\u{2019}b", false)] {
        let mut ids = vec![7];
        assert_eq!(own_pieces.append_chunk(chunk, &mut ids), is_own);
        assert_eq!((ids[0], ids.len() > 1), (7, is_own), "{chunk:?}");
    }
    pieces["unk_token"] = "none".into();
    assert!(own(&words, &pieces).is_none(), "no unknown token");
    assert!(own(&by_lines(&metaspace("never")), &model).is_none(), "no blank before the first word");
    model["vocab"][1] = json!(["x".repeat(1 << 12), -1.0]);
    assert!(own(&unigram_words(), &model).is_none(), "a piece is very long");
    model["vocab"][1] = json!(["ab", -1.0]);
    assert!(own(&unigram_words(), &model).is_none(), "a piece occurs twice");
}

/// Returns true if texts of this pipeline may be cut.
fn is_cut(normalizer: &Value, pre_tokenizer: &Value, model: &Value) -> bool {
    tokenizer(normalizer, pre_tokenizer, model).2.cuts.is_some()
}

#[test]
fn what_looks_across_a_blank_is_not_cut() {
    let none = Value::Null;
    let bpe = byte_level_model();
    let pieces = unigram_model();
    assert!(is_cut(&none, &byte_level(), &bpe));
    assert!(is_cut(&none, &byte_level_with_blank(), &bpe));
    assert!(!is_cut(&bert(true, true), &byte_level_with_blank(), &bpe));
    assert!(!is_cut(
        &none,
        &json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
        &bpe
    ));
    assert!(!is_cut(&json!({"type": "Strip", "strip_left": true, "strip_right": true}), &byte_level(), &bpe));
    assert!(!is_cut(
        &json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        &byte_level(),
        &bpe
    ));
    assert!(!is_cut(&json!({"type": "Prepend", "prepend": "x"}), &byte_level(), &bpe));
    assert!(!is_cut(&bert(true, true), &byte_level(), &bpe));
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
    assert!(!is_cut(&none, &metaspace, &pieces));
    assert!(!is_cut(&none, &none, &pieces));
    let mut dropout = bpe.clone();
    dropout["dropout"] = json!(0.1);
    assert!(!is_cut(&none, &byte_level(), &dropout));
}

#[test]
fn added_tokens_and_templates_decide_too() {
    let base = json!({"added_tokens": [], "normalizer": null, "pre_tokenizer": byte_level(), "post_processor": null, "model": byte_level_model()});
    let is_cut = |key: &str, value: Value| {
        let mut json = base.clone();
        json[key] = value;
        Fast::new(&json, false).cuts.is_some()
    };
    assert!(is_cut("added_tokens", json!([{"content": "<mask>", "special": true}])));
    assert!(!is_cut(
        "added_tokens",
        json!([{"content": "<mask>", "special": true}, {"content": "a b", "special": false}])
    ));
    let template = |pieces: Value| json!({"type": "TemplateProcessing", "single": pieces});
    let a = json!({"Sequence": {"id": "A", "type_id": 0}});
    let special = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    assert!(is_cut("post_processor", template(json!([special, a, special]))));
    assert!(!is_cut("post_processor", template(json!([a, a]))));
    assert!(!is_cut("post_processor", template(json!([special]))));
    assert!(!is_cut("model", json!({"vocab": {}})));
}

/// Bytes of each file: over all files, enough to fill caches and make them grow.
const PAGE_BYTES: usize = 4 << 10;

#[test]
fn real_pages() {
    let Some(folder) = real_data() else { return };
    let parts = ["text_fi", "text_en", "text_en/novels_txt", "messy", "messy/html", "messy/other_languages"];
    let files = parts.iter().flat_map(|part| base::fs::list(&folder.join(part)).unwrap_or_default());
    let files: Vec<PathBuf> = files.filter(|file| !base::fs::is_folder(file)).collect();
    files.par_iter().for_each(|file| {
        let bytes = base::fs::read_capped(file, 1 << 30).unwrap();
        let start = (bytes.len() / 2).min(1 << 20);
        assert_same(&String::from_utf8_lossy(&bytes[start..bytes.len().min(start + PAGE_BYTES)]));
    });
}
