//! WordPiece and unigram vocabularies trained on a page of text: special tokens, padding, round trips, equal
//! files.

use crate::config::TokenizerAlgorithm;
use crate::config::TokenizerConfig;
use crate::families::Family;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::UnknownText;
use crate::tokenizer::train::Trained;
use crate::tokenizer::train::Trainer;
use crate::tokenizer::train::TrainerOptions;

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
fn every_character_comes_back_from_unigram_pieces_but_the_one_that_stands_for_a_space() {
    let tokenizer = train(&config(TokenizerAlgorithm::Unigram, 450), Family::ROBERTA, 1).tokenizer;
    let all: Vec<char> = (0..=0x0010_ffff).filter_map(char::from_u32).filter(|c| *c != '▁').collect();
    for some in all
        .chunks(1 << 14)
        .map(|some| some.iter().step_by(17).collect::<String>())
        .chain([PAGE.into(), " \n <0x41> <s>  ".into()])
    {
        assert_eq!(tokenizer.decode(&ids(&tokenizer, &some), false).unwrap(), some);
    }
    assert_eq!(tokenizer.decode(&ids(&tokenizer, "a▁b"), false).unwrap(), "a b");
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

/// Words of one of `characters` Chinese characters each, all equally frequent, as a text without blanks has them.
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
    // A small vocabulary has as many as it has entries beside printable ASCII and the special tokens.
    let small = config(TokenizerAlgorithm::WordPiece, 1161);
    assert!((unknown_share(&small, &text) - 2.0 / 3.0).abs() < 0.01);
    // Rare characters do not take the room of words: of what is beside ASCII they have half, or what words leave.
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
