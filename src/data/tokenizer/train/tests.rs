//! WordPiece and unigram vocabularies trained on a page of text: special tokens, padding, round trips, equal
//! files.

use crate::tokenizer::train::{Trained, Trainer, TrainerOptions};
use crate::tokenizer::{Tokenizer, UnknownText, files, load};
use base::families::Family;
use config::{TokenizerAlgorithm, TokenizerConfig};

const PAGE: &str = "Mieleni minun tekevi, aivoni ajattelevi lähteäni laulamahan, saa'ani sanelemahan, sukuvirttä suoltamahan, \
    lajivirttä laulamahan. Sanat suussani sulavat, puhe'et putoelevat, kielelleni kerkiävät, hampahilleni hajoovat.\n";

fn train(config: &TokenizerConfig, family: Family, threads: usize) -> Trained {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut trainer = Trainer::new(TrainerOptions::new(config, family, 512)).unwrap();
        trainer.add(&[PAGE; 5]).unwrap();
        trainer.add(&["漢字 once"]).unwrap();
        trainer.finish(|_| {}).unwrap()
    })
}

fn config(algorithm: TokenizerAlgorithm, vocab_size: usize) -> TokenizerConfig {
    TokenizerConfig { algorithm, vocab_size, ..TokenizerConfig::default() }
}

const ALL: [TokenizerAlgorithm; 3] =
    [TokenizerAlgorithm::ByteLevelBpe, TokenizerAlgorithm::WordPiece, TokenizerAlgorithm::Unigram];

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_corpus(&[text]).unwrap().remove(0)
}

#[test]
fn files_are_the_same_for_any_number_of_threads() {
    for algorithm in ALL {
        let one = train(&config(algorithm, 400), Family::ROBERTA, 1);
        let three = train(&config(algorithm, 400), Family::ROBERTA, 3);
        assert_eq!(one.tokenizer.files(), three.tokenizer.files(), "{algorithm:?}");
        assert_eq!(one.notes, three.notes);
    }
}

#[test]
fn a_padded_vocabulary_has_its_size_and_a_mask_in_a_corpus_is_text() {
    for algorithm in ALL {
        for family in [Family::ROBERTA, Family::BERT] {
            let padded = TokenizerConfig { pad_vocab_to_multiple_of: Some(64), ..config(algorithm, 1000) };
            let tokenizer = train(&padded, family, 1).tokenizer;
            assert_eq!(tokenizer.vocab_size(), 1024, "{algorithm:?}");
            let mask = tokenizer.special().mask().unwrap();
            let text = format!("minun {} tekevi", tokenizer.token(mask).unwrap());
            assert!(!ids(&tokenizer, &text).contains(&mask), "{algorithm:?} {family:?}");
            assert!(tokenizer.encode(&text).unwrap().contains(&mask), "{algorithm:?} {family:?}");
        }
    }
}

#[test]
fn every_text_comes_back_from_unigram_pieces_but_one_blank_before_a_line() {
    let tokenizer = train(&config(TokenizerAlgorithm::Unigram, 450), Family::ROBERTA, 1).tokenizer;
    let all: Vec<char> = (0..=0x0010_ffff).filter_map(char::from_u32).filter(|c| *c != '▁').collect();
    for some in all
        .chunks(1 << 14)
        .map(|some| some.iter().step_by(17).collect::<String>())
        .chain([PAGE.into(), "x \n\n\n<0x41> <s>  ".into()])
    {
        let lines: Vec<&str> = some.split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        assert_eq!(tokenizer.decode(&ids(&tokenizer, &some), false).unwrap(), lines.join("\n"));
    }
    for (text, back) in [("a▁b", "a b"), (" a\n  b\n \n", "a\n b\n\n"), ("", ""), (" ", "")] {
        assert_eq!(tokenizer.decode(&ids(&tokenizer, text), false).unwrap(), back, "{text:?}");
    }
}

/// A word is spelled as after a blank at any position, and also if it is passed alone.
#[test]
fn the_first_word_of_a_text_is_spelled_as_others_are() {
    let with_blank =
        TokenizerConfig { add_prefix_space: true, ..config(TokenizerAlgorithm::ByteLevelBpe, 400) };
    let lowercase = TokenizerConfig { lowercase: true, strip_accents: true, ..with_blank.clone() };
    for config in [with_blank, lowercase, config(TokenizerAlgorithm::Unigram, 450)] {
        let tokenizer = train(&config, Family::ROBERTA, 1).tokenizer;
        let word = ids(&tokenizer, "minun");
        let twice = ids(&tokenizer, "minun minun");
        assert_eq!(twice, [&word[..], &word].concat(), "{config:?}");
        assert_eq!(tokenizer.encode("minun").unwrap(), word, "{config:?}");
        assert_eq!(tokenizer.encode_words(&["minun", " minun"]).unwrap(), [&word[..]; 2], "{config:?}");
        assert!(tokenizer.token(word[0]).unwrap().starts_with(['Ġ', '▁']), "{config:?}");
        assert_eq!(tokenizer.for_words().unwrap().encode_words(&["minun"]).unwrap(), [word]);
    }
    let tokenizer = train(&config(TokenizerAlgorithm::ByteLevelBpe, 400), Family::ROBERTA, 1).tokenizer;
    let twice = ids(&tokenizer, "minun minun");
    let alone = ids(&tokenizer, "minun");
    assert_ne!(twice, [&alone[..], &alone].concat());
    assert_eq!(tokenizer.for_words().unwrap().encode_words(&["minun"]).unwrap(), [&twice[alone.len()..]]);
}

/// The words are learnt with the blank before them, including the first words of texts.
#[test]
fn what_stands_first_is_counted_as_behind_a_blank() {
    let plain = config(TokenizerAlgorithm::ByteLevelBpe, 300);
    let made = |config: &TokenizerConfig| {
        let mut trainer = Trainer::new(TrainerOptions::new(config, Family::ROBERTA, 64)).unwrap();
        trainer.add(&["abab"; 9]).unwrap();
        trainer.finish(|_| {}).unwrap().tokenizer
    };
    assert_eq!(made(&plain).id("Ġabab"), None);
    assert!(made(&TokenizerConfig { add_prefix_space: true, ..plain }).id("Ġabab").is_some());
}

/// Unigram vocabularies of earlier versions put no `▁` before the first word.
#[test]
fn a_vocabulary_without_first_blanks_is_read_as_it_is_and_turned_for_taggers() {
    let made = train(&config(TokenizerAlgorithm::Unigram, 450), Family::ROBERTA, 1).tokenizer;
    let mut json = load::parse(made.files(), "here").unwrap();
    let steps = json["pre_tokenizer"]["pretokenizers"].as_array().unwrap();
    let mut old = vec![steps[0].clone(), steps[2].clone()];
    old[1]["prepend_scheme"] = "never".into();
    json["pre_tokenizer"]["pretokenizers"] = old.into();
    let files = files::with(made.files().to_vec(), "tokenizer.json", &json);
    let old = Tokenizer::from_files(files, "here").unwrap();
    let word = ids(&old, "minun");
    let twice = ids(&old, "minun minun");
    assert_eq!(old.encode_words(&["minun"]).unwrap(), [&word[..]]);
    assert_ne!(word, ids(&made, "minun"));
    let turned = old.for_words().unwrap();
    assert_eq!(turned.encode_words(&["minun"]).unwrap(), [&twice[word.len()..]]);
    assert_eq!(turned.encode_words(&["minun"]).unwrap(), [ids(&made, "minun")]);
}

/// The settings agree with tokenizer.json, whichever class of transformers reads them.
#[test]
fn settings_agree_with_the_pipeline() {
    let settings = |files: &[(String, Vec<u8>)]| -> serde_json::Value {
        let (_, bytes) = files.iter().find(|(name, _)| name == "tokenizer_config.json").unwrap();
        serde_json::from_slice(bytes).unwrap()
    };
    let types = serde_json::json!(["input_ids", "token_type_ids", "attention_mask"]);
    let no_types = serde_json::json!(["input_ids", "attention_mask"]);
    for algorithm in ALL {
        for (family, names) in [
            (Family::BERT, &types),
            (Family::ALBERT, &types),
            (Family::ELECTRA, &types),
            (Family::ROBERTA, &no_types),
            (Family::MODERNBERT, &no_types),
            (Family::MPNET, &no_types),
        ] {
            let made = train(&config(algorithm, 450), family, 1).tokenizer;
            assert_eq!(&settings(made.files())["model_input_names"], names, "{algorithm:?}");
            assert_eq!(settings(&made.files_of_model(false))["model_input_names"], no_types);
            // A model with token types gets none from a tokenizer without them.
            assert_eq!(&settings(&made.files_of_model(true))["model_input_names"], names);
        }
    }
    let made = train(&config(TokenizerAlgorithm::ByteLevelBpe, 450), Family::BERT, 1).tokenizer;
    let files = files::with_setting(made.files().to_vec(), "tokenizer_class", "TokenizersBackend");
    let read = Tokenizer::from_files(files, "here").unwrap();
    assert_eq!(settings(&read.files_of_model(true))["tokenizer_class"], "PreTrainedTokenizerFast");
    let contradicted = |algorithm, wrong: &[(&str, bool)]| {
        let made = train(&config(algorithm, 450), Family::BERT, 1).tokenizer;
        let wrong = wrong.iter().map(|(key, value)| ((*key).to_string(), (*value).into())).collect();
        let files = files::with_settings(made.files().to_vec(), wrong);
        settings(&Tokenizer::from_files(files, "here").unwrap().files_of_model(false))
    };
    let wrong = [("do_lower_case", true), ("strip_accents", true), ("tokenize_chinese_chars", false)];
    // BERT's class obeys its settings, regardless of tokenizer.json; the general class uses tokenizer.json as
    // it is.
    let right = contradicted(TokenizerAlgorithm::WordPiece, &wrong);
    assert_eq!(wrong.map(|(key, _)| right[key].as_bool().unwrap()), [true, true, false]);
    let right = contradicted(TokenizerAlgorithm::ByteLevelBpe, &[("add_prefix_space", true)]);
    assert_eq!(right["add_prefix_space"], false);
}

#[test]
fn letters_are_changed_as_asked() {
    for algorithm in ALL {
        let plain = TokenizerConfig { lowercase: true, strip_accents: true, ..config(algorithm, 400) };
        let tokenizer = train(&plain, Family::BERT, 1).tokenizer;
        assert_eq!(ids(&tokenizer, "Sanat LÄHTEÄNI"), ids(&tokenizer, "sanat lahteani"), "{algorithm:?}");
        let kept = TokenizerConfig { lowercase: true, ..config(algorithm, 400) };
        let tokenizer = train(&kept, Family::BERT, 1).tokenizer;
        assert_eq!(ids(&tokenizer, "LÄHTEÄNI"), ids(&tokenizer, "lähteäni"), "{algorithm:?}");
        assert_ne!(ids(&tokenizer, "lähteäni"), ids(&tokenizer, "lahteani"), "{algorithm:?}");
    }
}

#[test]
fn word_pieces_go_on_with_their_prefix_and_strangers_are_unknown() {
    let trained = train(&config(TokenizerAlgorithm::WordPiece, 200), Family::BERT, 1);
    let tokenizer = &trained.tokenizer;
    let spelled: Vec<String> =
        ids(tokenizer, "laulamahan").into_iter().filter_map(|id| tokenizer.token(id)).collect();
    assert!(spelled.len() < 10 && spelled[1..].iter().all(|piece| piece.starts_with("##")), "{spelled:?}");
    assert_eq!(ids(tokenizer, "☃"), [tokenizer.special().unk.unwrap()]);
}

/// A text of `characters` different Chinese characters, each a word and equally frequent, as in a text
/// without blanks.
fn chinese(characters: u32, times: usize) -> String {
    let one_of_each: String = (0x4e00..0x4e00 + characters).filter_map(char::from_u32).collect();
    vec![one_of_each; times].join("\n")
}

fn unknown_share(config: &TokenizerConfig, text: &str) -> f64 {
    let mut trainer = Trainer::new(TrainerOptions::new(config, Family::BERT, 512)).unwrap();
    trainer.add(&[text; 3]).unwrap();
    let tokenizer = trainer.finish(|_| {}).unwrap().tokenizer;
    let ids = tokenizer.encode_corpus(&[text]).unwrap();
    UnknownText::of(&tokenizer, &[text], &ids).unwrap().share()
}

#[test]
fn the_alphabet_of_word_pieces_follows_the_vocabulary() {
    let text = chinese(3000, 1);
    let wanted = config(TokenizerAlgorithm::WordPiece, 8000);
    assert!(unknown_share(&wanted, &text) < 0.001, "there is room for all of them");
    // The usual limit leaves two thirds of such a text unknown.
    let limited = TokenizerConfig { limit_alphabet: Some(1000), ..wanted };
    assert!((unknown_share(&limited, &text) - 2.0 / 3.0).abs() < 0.01);
    // A small vocabulary has as many characters as it has entries in addition to printable ASCII and the
    // special tokens.
    let small = config(TokenizerAlgorithm::WordPiece, 1161);
    assert!((unknown_share(&small, &text) - 2.0 / 3.0).abs() < 0.01);
    // Rare characters do not take the space of words: apart from ASCII they have half of it, or what words
    // leave.
    let mut trainer =
        Trainer::new(TrainerOptions::new(&config(TokenizerAlgorithm::WordPiece, 360), Family::BERT, 512))
            .unwrap();
    trainer.add(&[&PAGE.repeat(20), &chinese(900, 1)]).unwrap();
    let tokenizer = trainer.finish(|_| {}).unwrap().tokenizer;
    let tokens: Vec<String> = (0..360).filter_map(|id| tokenizer.token(id)).collect();
    let rare = tokens.iter().filter(|token| token.starts_with(|c| c >= '\u{4e00}')).count();
    assert!((80..140).contains(&rare) && tokens.len() == 360, "{rare} of {}", tokens.len());
    assert!(tokens.iter().any(|token| token == "laulamahan"));
}

#[test]
fn printable_ascii_is_always_known_to_word_pieces() {
    for lowercase in [false, true] {
        let wanted = TokenizerConfig { lowercase, ..config(TokenizerAlgorithm::WordPiece, 300) };
        let tokenizer = train(&wanted, Family::BERT, 1).tokenizer;
        let unk = tokenizer.special().unk.unwrap();
        let text: String = (' '..='~').collect::<String>() + " x9Z zzz QQQ 000";
        assert!(!ids(&tokenizer, &text).contains(&unk), "lowercase {lowercase}");
    }
}
