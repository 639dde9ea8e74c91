//! Training on a real page of text, round trips, and files that are equal after loading.

mod hostile;

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use base::families::Family;
use config::TokenizerConfig;

const STORY: &str = "When Mary Lennox was sent to Misselthwaite Manor to live with her uncle everybody said she was the most \
    disagreeable-looking child ever seen. It was true, too. She had a little thin face and a little thin body, thin light hair \
    and a sour expression. Vaka vanha Väinämöinen itse tuon sanoiksi virkki.";

fn train_with(family: Family, config: &TokenizerConfig) -> Trained {
    let mut trainer = Trainer::new(TrainerOptions::new(config, family, 512)).unwrap();
    for sentence in STORY.split_inclusive(". ") {
        trainer.add(&[sentence, sentence]).unwrap();
    }
    trainer.finish(|_| {}).unwrap()
}

fn train(family: Family, vocab_size: usize) -> Tokenizer {
    train_with(family, &TokenizerConfig { vocab_size, ..TokenizerConfig::default() }).tokenizer
}

#[test]
fn special_tokens_have_the_ids_of_their_family() {
    let roberta = train(Family::ROBERTA, 300);
    assert_eq!(roberta.special(), &SpecialTokens { cls: 0, pad: 1, sep: 2, unk: Some(3), mask: Some(4) });
    assert_eq!(roberta.token(4).as_deref(), Some("<mask>"));
    let bert = train(Family::BERT, 300);
    assert_eq!(bert.special(), &SpecialTokens { pad: 0, unk: Some(1), cls: 2, sep: 3, mask: Some(4) });
    assert_eq!(
        (bert.special_ids(), bert.vocab_size(), bert.ordinary_ids().len()),
        (&[0, 1, 2, 3, 4][..], 300, 295)
    );
}

#[test]
fn every_byte_and_finnish_text_come_back() {
    let tokenizer = train(Family::ROBERTA, 300);
    let all_characters: String = (0..=0x2ff).chain(0x1f600..0x1f640).filter_map(char::from_u32).collect();
    for text in [
        all_characters.as_str(),
        STORY,
        "Mieleni minun tekevi, aivoni ajattelevi lähteäni laulamahan 🎶",
        " \n\t  a",
        "",
    ] {
        let ids = tokenizer.encode_corpus(&[text]).unwrap().remove(0);
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

#[test]
fn training_again_gives_the_same_files_and_loading_them_the_same_tokenizer() {
    let one = train(Family::ROBERTA, 400);
    let two = train(Family::ROBERTA, 400);
    assert_eq!(one.files(), two.files());
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in one.files() {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let loaded = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(loaded.fingerprint(), one.fingerprint());
    assert_ne!(loaded.fingerprint(), train(Family::ROBERTA, 399).fingerprint());
    let mut names: Vec<&str> = loaded.files().iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["merges.txt", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
    );
    let [loaded, one] = [&loaded, &one].map(|tokenizer| {
        let mut files = tokenizer.files().to_vec();
        files.sort();
        files
    });
    assert_eq!(loaded, one);
}

#[test]
fn the_longest_sequence_comes_from_the_files_if_they_have_one() {
    let tokenizer = train(Family::BERT, 300);
    assert_eq!(tokenizer.model_max_length(), Some(512));
    // "No limit" as transformers writes it: `int(1e30)`.
    let unlimited = r#"{"model_max_length": 1000000000000000019884624838656, "do_lower_case": true}"#;
    for config in [unlimited, r#"{"model_max_length": 0}"#, r#"{"model_max_length": "1e30"}"#, "{}"] {
        assert_eq!(with_config(&tokenizer, config).model_max_length(), None, "{config}");
        let set = with_config(&tokenizer, config).with_model_max_length(48);
        let again = Tokenizer::from_files(set.files().to_vec(), "here").unwrap();
        assert_eq!(again.model_max_length(), Some(48), "{config}");
    }
    let set = with_config(&tokenizer, unlimited).with_model_max_length(48);
    let [names, expected] = [&set, &tokenizer].map(|tokenizer| {
        let mut names: Vec<String> = tokenizer.files().iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    });
    assert_eq!(names, expected);
    let (_, config) = set.files().iter().find(|(name, _)| name == "tokenizer_config.json").unwrap();
    assert!(String::from_utf8_lossy(config).contains("\"do_lower_case\": true"), "other keys stay");
}

/// The same tokenizer with this `tokenizer_config.json`.
fn with_config(tokenizer: &Tokenizer, config: &str) -> Tokenizer {
    let mut files = tokenizer.files().to_vec();
    files.retain(|(name, _)| name != "tokenizer_config.json");
    files.push(("tokenizer_config.json".to_string(), config.as_bytes().to_vec()));
    Tokenizer::from_files(files, "here").unwrap()
}

/// Earlier versions of this program wrote no `model_input_names`, for which transformers 5 passes no token
/// types.
#[test]
fn a_model_of_an_earlier_version_gets_the_types_that_it_was_trained_with() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in train(Family::BERT, 300).files() {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let path = folder.path().join("tokenizer_config.json");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    settings.as_object_mut().unwrap().shift_remove("model_input_names");
    std::fs::write(&path, settings.to_string()).unwrap();
    let ours = r#"{"architectures": ["BertModel"], "model_type": "bert"}"#;
    let published =
        r#"{"architectures": ["BertModel"], "model_type": "bert", "transformers_version": "5.24.0"}"#;
    for (config, gives_types) in [(ours, true), (published, false)] {
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        assert_eq!(Tokenizer::load(folder.path()).unwrap().gives_token_types(), gives_types);
    }
}

#[test]
fn a_mask_in_a_prompt_is_the_mask_and_in_the_corpus_it_is_text() {
    let tokenizer = train(Family::ROBERTA, 300);
    let text = "She was <mask>.";
    assert_eq!(tokenizer.encode(text).unwrap().iter().filter(|id| **id == 4).count(), 1);
    let plain = tokenizer.encode_corpus(&[text]).unwrap().remove(0);
    assert!(plain.iter().all(|id| *id > 4));
    assert_eq!(tokenizer.decode(&plain, true).unwrap(), text);
}

#[test]
fn offsets_are_bytes_of_the_text() {
    let tokenizer = train(Family::ROBERTA, 400);
    let text = "Väinämöinen was thin";
    let encoded = tokenizer.encode_with_offsets(text).unwrap();
    assert_eq!(encoded.ids, tokenizer.encode(text).unwrap());
    assert_eq!(encoded.offsets.last().unwrap().1, text.len());
}

#[test]
fn a_word_piece_tokenizer_is_taken_as_it_is_but_without_its_padding() {
    let json = r###"{"version": "1.0", "truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": {"strategy": {"Fixed": 999999999999999}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [{"id": 4, "content": "[MASK]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "the": 5, "gard": 6, "##en": 7, "secret": 8}}}"###;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json).unwrap();
    let tokenizer = Tokenizer::load(&path).unwrap();
    assert_eq!(
        tokenizer.encode("The secret garden, [MASK] the garden").unwrap(),
        [5, 8, 6, 7, 1, 4, 5, 6, 7]
    );
    assert_eq!(tokenizer.files()[0].1, json.as_bytes());
    assert_eq!(tokenizer.special().mask().unwrap(), 4);
}

#[test]
fn missing_and_broken_parts_are_reported_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let message = |content: &str| {
        std::fs::write(folder.path().join("tokenizer.json"), content).unwrap();
        let error = Tokenizer::load(folder.path()).err().expect("the file is refused").to_string();
        assert!(error.contains("tokenizer.json"), "{error}");
        error
    };
    assert!(message("{").contains("is not JSON"));
    assert!(message("{}").contains("key `model` is missing"));
    assert!(message(r#"{"model": {"type": "Nonsense"}}"#).contains("is not a tokenizer that can be used"));
    let bare = r#"{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1}, "unk_token": "<s>"}}"#;
    assert!(message(bare).contains("has none of the tokens `<pad>`, `[PAD]`"), "{}", message(bare));
    let config = TokenizerConfig { vocab_size: 200, ..TokenizerConfig::default() };
    let too_small = Trainer::new(TrainerOptions::new(&config, Family::BERT, 512));
    assert!(too_small.err().expect("no room for bytes").to_string().contains("at least 261"));
}

static SMALL: LazyLock<Tokenizer> = LazyLock::new(|| train(Family::BERT, 270));

proptest! {
    #[test]
    fn any_text_comes_back(text in "\\PC{0,60}") {
        let ids = SMALL.encode_corpus(&[&text]).unwrap().remove(0);
        prop_assert_eq!(SMALL.decode(&ids, false).unwrap(), text);
    }
}
