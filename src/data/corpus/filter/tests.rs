//! Tests each rule at its boundary: a text just inside is kept, one just outside is left out, with its reason
//! and the measured value.

use crate::corpus::{Judge, Judged};
use config::{
    CharactersFilter, CleaningConfig, DataConfig, FiltersConfig, GopherFilter, LengthFilter, LinesFilter,
    PerplexityFilter, RepetitionFilter, StopWords,
};

fn judged(text: &str, change: impl FnOnce(&mut FiltersConfig)) -> Judged {
    let mut data = DataConfig::default();
    change(&mut data.filters);
    Judge::new(&data).expect("is right").judge(text)
}

/// Returns `reason: detail`, or `kept`.
fn found(text: &str, change: impl FnOnce(&mut FiltersConfig)) -> String {
    judged(text, change).rejection.map_or("kept".to_string(), |r| format!("{}: {}", r.reason, r.detail))
}

/// Returns the remaining text of a document, with bars between its lines, and the counts.
fn left(text: &str, change: impl FnOnce(&mut FiltersConfig)) -> String {
    let judged = judged(text, change);
    assert_eq!(judged.rejection, None);
    format!("{} {:?}", judged.text.replace('\n', "|"), judged.changes)
}

#[test]
fn nothing_is_left_out_by_default() {
    for text in ["x", "<html>{", "!!!", "a a a a a a a a a a a a a a a a a a"] {
        assert_eq!(found(text, |_| {}), "kept");
    }
    assert_eq!(found(" \u{200b}\n ", |_| {}), "no_text: ");
}

#[test]
fn length() {
    fn limits(f: &mut FiltersConfig) {
        f.length =
            LengthFilter { min_chars: Some(4), max_chars: Some(12), min_words: Some(2), max_words: Some(3) };
    }
    assert_eq!(found("yö ö", limits), "kept");
    assert_eq!(found("yöö", limits), "too_short: 3 characters, at least 4 are wanted");
    assert_eq!(found("äää äää ääää", limits), "kept");
    assert_eq!(found("äää äää äääää", limits), "too_long: 13 characters, at most 12 are allowed");
    assert_eq!(found("yksi", limits), "too_few_words: 1 words, at least 2 are wanted");
    assert_eq!(found("a b c d", limits), "too_many_words: 4 words, at most 3 are allowed");
}

#[test]
fn characters() {
    assert_eq!(found("äiti 12345 !", characters_with(|c| c.min_alphabetic = Some(0.4))), "kept");
    assert_eq!(
        found("äiti 123456 !", characters_with(|c| c.min_alphabetic = Some(0.4))),
        "few_letters: 36.4 % letters, at least 40 % are wanted"
    );
    assert_eq!(found("a1", characters_with(|c| c.max_digits = Some(0.5))), "kept");
    assert_eq!(
        found("a12", characters_with(|c| c.max_digits = Some(0.5))),
        "many_digits: 66.7 % digits, at most 50 % are allowed"
    );
    assert_eq!(found("a😀", characters_with(|c| c.max_symbols = Some(0.5))), "kept");
    assert_eq!(
        found("a😀!", characters_with(|c| c.max_symbols = Some(0.5))),
        "many_symbols: 66.7 % symbols, at most 50 % are allowed"
    );
    assert_eq!(found("ÄÖ ab 1", characters_with(|c| c.max_uppercase = Some(0.5))), "kept");
    assert_eq!(
        found("ÄÖ Åb 1", characters_with(|c| c.max_uppercase = Some(0.5))),
        "many_capitals: 75 % of the letters are capitals, at most 50 % are allowed"
    );
    assert_eq!(
        found("हिन्दी में लिखा", characters_with(|c| c.max_symbols = Some(0.0))),
        "kept",
        "vowel signs belong to letters"
    );
}

fn characters_with(change: fn(&mut CharactersFilter)) -> impl FnOnce(&mut FiltersConfig) {
    move |f| change(&mut f.characters)
}

#[test]
fn markup() {
    fn on(f: &mut FiltersConfig) {
        f.markup.enabled = true;
    }
    assert_eq!(found("\n <!DOCTYPE HTML PUBLIC><p>Hei", on), "html_markup: begins with `<!doctype html`");
    assert_eq!(found("<HTML lang=fi>Hei", on), "html_markup: begins with `<html`");
    // Tags are 3 of 15 characters, then 7 of 19.
    let text = "a".repeat(12);
    assert_eq!(found(&format!("{text}<b>"), on), "kept");
    assert_eq!(
        found(&format!("{text}<b></b>"), on),
        "html_markup: 36.8 % of the characters stand within tags, at most 20 % are allowed"
    );
    assert_eq!(found(&format!("<script>{text}</script>{text}"), on).split(':').next(), Some("html_markup"));
    assert_eq!(found("Jos a < b ja c > d, niin <nimi@esimerkki.fi> kirjoittaa.", on), "kept");
}

#[test]
fn lines_by_their_form() {
    let text = "ab\nabc\nabcd\nhttps://a.fi (www.b.fi) <c@d.fi>\nkatso www.b.fi\n\nLue lisää\nLue lisää kirjoja!\nOsta heti: https://x.fi";
    assert_eq!(
        left("ab\nabc\n\nabcd", lines_with(|l| (l.min_chars, l.max_chars) = (Some(3), Some(3)))),
        r#"abc [("line_too_short", 1), ("line_too_long", 1)]"#
    );
    assert_eq!(
        left(text, lines_with(|l| l.urls = true)),
        r#"ab|abc|abcd|katso www.b.fi||Lue lisää|Lue lisää kirjoja!|Osta heti: https://x.fi [("line_url", 1)]"#
    );
    assert_eq!(
        left(text, lines_with(|l| l.boilerplate = true)),
        r#"ab|abc|abcd|https://a.fi (www.b.fi) <c@d.fi>|katso www.b.fi||Lue lisää kirjoja!|Osta heti: https://x.fi [("line_boilerplate", 1)]"#
    );
    let pattern = lines_with(|l| l.patterns = vec!["OSTA*HTTPS://*".to_string(), "abc".to_string()]);
    assert_eq!(
        left(text, pattern),
        r#"ab|abcd|https://a.fi (www.b.fi) <c@d.fi>|katso www.b.fi||Lue lisää|Lue lisää kirjoja! [("line_pattern", 2)]"#
    );
    assert_eq!(found("Lue lisää\n\nJaa", lines_with(|l| l.boilerplate = true)), "no_lines_left: ");
    assert_eq!(
        left("one\n\nRead more\n\ntwo", lines_with(|l| l.boilerplate = true)),
        r#"one||two [("line_boilerplate", 1)]"#
    );
}

fn lines_with(change: fn(&mut LinesFilter)) -> impl FnOnce(&mut FiltersConfig) {
    move |f| change(&mut f.lines)
}

#[test]
fn c4_lines() {
    fn on(f: &mut FiltersConfig) {
        f.c4.enabled = true;
        f.c4.min_sentences = None;
    }
    let text = "Tämä on ensimmäinen oikea lause.\nEtusivu Uutiset Urheilu Sää Yhteystiedot\nLiian lyhyt tämä rivi.\n\
        Ota JavaScript käyttöön selaimen asetuksista nyt.\nTällä sivulla on tärkeä tietosuojaseloste luettavana.\n\
        ”Hän sanoi sen ihan itse eilen”\nTämä lause jäi aivan kesken...\nTieto on peräisin muualta [1][23] kuin luultiin [citation needed].";
    assert_eq!(
        left(text, on),
        "Tämä on ensimmäinen oikea lause.|”Hän sanoi sen ihan itse eilen”|Tieto on peräisin muualta kuin luultiin . \
         [(\"c4_line_punctuation\", 2), (\"c4_line_words\", 1), (\"c4_line_javascript\", 1), (\"c4_line_policy\", 1), (\"c4_citation_marker\", 1)]"
    );
    assert_eq!(found("Yhtään oikeaa lausetta ei tästä löydy", on), "no_lines_left: ");
}

#[test]
fn c4_documents() {
    fn on(f: &mut FiltersConfig) {
        f.c4.enabled = true;
        f.c4.min_words_per_line = None;
    }
    assert_eq!(found("Yksi. Kaksi! (Kolme?)", on), "kept");
    assert_eq!(found("Yksi... Kaksi!\n3.5 on luku.", on), "kept");
    assert_eq!(found("Vain 3.5 yksi. Kaksi!", on), "c4_few_sentences: 2 sentences, at least 3 are wanted");
    assert_eq!(found("我爱你。你爱我。我们走。", on), "kept");
    assert_eq!(found("Yksi. Kaksi. if (x) { y }. Kolme.", on), "c4_curly_bracket: holds `{`");
    assert_eq!(found("Yksi. Kaksi. Lorem Ipsum dolor. Kolme.", on), "c4_lorem_ipsum: holds `lorem ipsum`");
}

/// Gopher's rules, without the two that short test texts would break.
fn gopher(change: fn(&mut GopherFilter)) -> impl FnOnce(&mut FiltersConfig) {
    move |f| {
        f.gopher =
            GopherFilter { enabled: true, min_words: None, min_stop_words: None, ..GopherFilter::default() };
        change(&mut f.gopher);
    }
}

#[test]
fn gopher_rules() {
    assert_eq!(found(&words(50), gopher(|g| g.min_words = Some(50))), "kept");
    assert_eq!(
        found(&words(49), gopher(|g| g.min_words = Some(50))),
        "gopher_few_words: 49 words, at least 50 are wanted"
    );
    assert_eq!(
        found(&words(4), gopher(|g| g.max_words = Some(3))),
        "gopher_many_words: 4 words, at most 3 are allowed"
    );
    assert_eq!(found("abc abc", gopher(|_| {})), "kept");
    assert_eq!(
        found("abc ab", gopher(|_| {})),
        "gopher_word_length: 2.50 characters a word, at least 3 are wanted"
    );
    assert_eq!(found("abcdefghij", gopher(|_| {})), "kept");
    assert_eq!(
        found("abcdefghijk", gopher(|_| {})),
        "gopher_word_length: 11.00 characters a word, at most 10 are allowed"
    );
    assert_eq!(found(&format!("{} #sana", words(9)), gopher(|_| {})), "kept");
    assert_eq!(
        found(&format!("{} #sana", words(8)), gopher(|_| {})),
        "gopher_symbols: 0.11 `#` a word, at most 0.1 are allowed"
    );
    assert_eq!(
        found(&format!("{} sana…", words(8)), gopher(|_| {})),
        "gopher_symbols: 0.11 ellipses a word, at most 0.1 are allowed"
    );
    assert_eq!(
        found(&format!("{}sana", "• sana\n".repeat(9)), gopher(|g| g.min_alphabetic_words = None)).as_str(),
        "gopher_word_length: 2.58 characters a word, at least 3 are wanted"
    );
    let bullets = "- pitkäsana\n";
    assert_eq!(
        found(&format!("{}sana", bullets.repeat(9)), gopher(|g| g.min_alphabetic_words = None)),
        "kept"
    );
    assert_eq!(
        found(&format!("{}sana", bullets.repeat(10)), gopher(|g| g.min_alphabetic_words = None)),
        "gopher_bullets: 90.9 % of the lines begin with a bullet, at most 90 % are allowed"
    );
    let cut = format!("{}...\n", words(20));
    let whole = "sana ja sana\n".repeat(7);
    assert_eq!(found(&format!("{}{whole}", cut.repeat(3)), gopher(|_| {})), "kept");
    assert_eq!(
        found(&format!("{}{whole}", cut.repeat(4)), gopher(|_| {})),
        "gopher_ellipses: 36.4 % of the lines end in an ellipsis, at most 30 % are allowed"
    );
    assert_eq!(found("sana sana sana sana 1234", gopher(|_| {})), "kept");
    assert_eq!(
        found("sana sana sana 1234 5678", gopher(|_| {})),
        "gopher_words_without_letters: 60 % of the words have a letter, at least 80 % are wanted"
    );
}

fn words(n: usize) -> String {
    vec!["sana"; n].join(" ")
}

#[test]
fn stop_words() {
    fn two(g: &mut GopherFilter) {
        g.min_stop_words = Some(2);
    }
    fn english(g: &mut GopherFilter) {
        g.min_stop_words = Some(2);
        g.stop_words = vec![StopWords::English];
    }
    assert_eq!(found("Isä ja äiti, mutta koira karkasi", gopher(two)), "kept");
    assert_eq!(found("The cat and the dog", gopher(two)), "kept");
    assert_eq!(
        found("The cat, the dog", gopher(two)),
        "gopher_stop_words: 1 different stop words, at least 2 are wanted"
    );
    assert_eq!(
        found("Isä ja äiti, mutta koira karkasi", gopher(english)),
        "gopher_stop_words: 0 different stop words, at least 2 are wanted"
    );
}

#[test]
fn repetition_of_lines_and_paragraphs() {
    fn on(f: &mut FiltersConfig) {
        f.repetition = RepetitionFilter {
            enabled: true,
            max_top_ngram_chars: vec![],
            max_duplicate_ngram_chars: vec![],
            ..Default::default()
        };
    }
    fn only_paragraphs(f: &mut FiltersConfig) {
        on(f);
        f.repetition.max_duplicate_lines = None;
        f.repetition.max_duplicate_line_chars = None;
    }
    let other =
        (0..8).map(|n| format!("rivi numero {n} on toisista poikkeava\n")).collect::<Vec<_>>().concat();
    assert_eq!(found(&format!("{other}a\na\na\n"), on), "kept", "2 of 11 lines");
    assert_eq!(
        found(&format!("{other}a\na\na\na\na\n"), on),
        "duplicate_lines: 30.8 % of the lines were there before, at most 30 % are allowed"
    );
    let long = "tämä pitkä rivi toistuu sanasta sanaan, eikä siinä ole mitään uutta kenellekään lukijalle\n";
    assert_eq!(
        found(&format!("{}{}", &other[36..], long.repeat(2)), on),
        "duplicate_line_chars: 21 % of the characters stand in lines that were there before, at most 20 % are allowed"
    );
    assert_eq!(found(&format!("{other}{}", long.repeat(2)), on), "kept", "19.4 % of the characters");
    let paragraph = "eka\ntoka\n\n";
    assert_eq!(
        found(&format!("{paragraph}{paragraph}kolmas"), only_paragraphs),
        "duplicate_paragraphs: 33.3 % of the paragraphs were there before, at most 30 % are allowed"
    );
}

#[test]
fn repetition_of_sequences() {
    fn on(f: &mut FiltersConfig) {
        f.repetition = RepetitionFilter { enabled: true, min_words: 0, ..RepetitionFilter::default() };
    }
    // Of 25 words of two characters, `aa bb` is 4, then 6.
    assert_eq!(found(&format!("aa bb {} aa bb", distinct(21)), on), "kept");
    assert_eq!(
        found(&format!("aa bb {} aa bb qq aa bb", distinct(18)), on),
        "top_ngrams: 24 % of the characters stand in the most frequent sequence of 2 words, at most 20 % are allowed"
    );
    // Of 40 words, 5 occurred before: 12.5 %; of 39 words, 6: 15.4 %.
    assert_eq!(found(&format!("aa bb cd ef gh {} aa bb cd ef gh", distinct(30)), duplicates_only), "kept");
    assert_eq!(
        found(&format!("aa bb zz ef gh ij {} aa bb zz ef gh ij", distinct(27)), duplicates_only),
        "duplicate_ngrams: 15.4 % of the characters stand in repeated sequences of 5 words, at most 15 % are allowed"
    );
    assert_eq!(found("yksi", on), "kept");
}

/// Returns `n` different words of two characters.
fn distinct(n: usize) -> String {
    (0..n)
        .map(|i| format!("{}{}", (b'c' + (i / 20) as u8) as char, (b'c' + (i % 20) as u8) as char))
        .collect::<Vec<_>>()
        .join(" ")
}

fn duplicates_only(f: &mut FiltersConfig) {
    f.repetition = RepetitionFilter {
        enabled: true,
        min_words: 0,
        max_top_ngram_chars: vec![1.0],
        ..RepetitionFilter::default()
    };
}

#[test]
fn listed_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("words.txt");
    std::fs::write(&list, "# a comment\nKasino\nilmainen  raha\n\n").expect("is writable");
    let with = |max_count, max_share| {
        let files = vec![list.display().to_string()];
        move |f: &mut FiltersConfig| {
            (f.words.files, f.words.max_count, f.words.max_share) = (files, max_count, max_share);
        }
    };
    let text = "KASINO! Täällä on ilmainen raha, eikä ilmainen lounas.";
    assert_eq!(found(text, with(Some(2), None)), "kept");
    assert_eq!(
        found(text, with(None, None)),
        "listed_words: 2 listed words or phrases, at most 0 are allowed"
    );
    assert_eq!(found(text, with(None, Some(0.375))), "kept");
    assert_eq!(
        found(text, with(None, Some(0.37))),
        "listed_words: 37.5 % of the words are listed, at most 37 % are allowed"
    );
    assert_eq!(found("kasinolla", with(None, None)), "kept", "whole words only");
    std::fs::write(&list, "# nothing\n").expect("is writable");
    let mut data = DataConfig::default();
    with(None, None)(&mut data.filters);
    let error = format!("{:#}", Judge::new(&data).err().expect("is wrong"));
    assert!(error.contains("words.txt: holds no word"), "{error}");
}

#[test]
fn language() {
    let finnish = "Suomen talvi on pitkä ja pimeä, mutta kesällä aurinko ei laske lainkaan pohjoisessa.";
    let swedish = "Vintern i Finland är lång och mörk, men på sommaren går solen inte ner i norr alls.";
    assert_eq!(found(finnish, expect(&["fi"])), "kept");
    assert_eq!(judged(finnish, expect(&["swe", "fin"])).language, Some("fin"));
    assert!(
        found(swedish, expect(&["fin"])).starts_with("language: `swe` with confidence "),
        "{}",
        found(swedish, expect(&["fin"]))
    );
    assert_eq!(judged(swedish, expect(&["fin"])).language, Some("swe"));
    assert_eq!(judged(swedish, |f| f.language.detect = true).language, Some("swe"));
    assert_eq!(judged(swedish, |_| {}).language, None);
    let short = judged("Hej på dig!", expect(&["fin"]));
    assert_eq!((short.rejection, short.language), (None, None), "too short to be judged");
    let unsure = found(finnish, |f| {
        f.language.expected = vec!["fin".to_string()];
        f.language.min_confidence = 1.0;
    });
    assert_eq!(unsure, "kept");
}

fn expect(names: &'static [&'static str]) -> impl FnOnce(&mut FiltersConfig) {
    move |f| f.language.expected = names.iter().map(|n| (*n).to_string()).collect()
}

#[test]
fn perplexity() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good.jsonl");
    let text = (0..300)
        .map(|n| format!("{{\"text\": \"kissa numero {n} istuu puussa ja katsoo kuuta\", \"id\": {n}}}\n"))
        .collect::<Vec<_>>()
        .concat();
    std::fs::write(&good, text).expect("is writable");
    let with = |most| {
        let files = vec![good.display().to_string()];
        move |f: &mut FiltersConfig| {
            f.perplexity =
                PerplexityFilter { reference_files: files, max_perplexity: Some(most), ..Default::default() }
        }
    };
    assert_eq!(found("koira ja kissa istuu puussa ja katsoo kuuta", with(10.0)), "kept");
    let strange = found("Q7#x ZZvv 0xDEAD %%% qwjxz \u{4e2d}\u{6587} $$$", with(10.0));
    assert!(
        strange.starts_with("perplexity: perplexity ")
            && strange.ends_with(" a character, at most 10 are allowed"),
        "{strange}"
    );
    assert_eq!(found("zq#", with(2.0)), "kept", "too short to be judged");
}

#[test]
fn cleaning_comes_first_and_the_first_rule_is_the_reason() {
    let mut data = DataConfig::default();
    data.filters.length.min_chars = Some(4);
    data.filters.characters.max_symbols = Some(0.1);
    let judge = Judge::new(&data).expect("is right");
    let judged = judge.judge("  &auml;!  ");
    assert_eq!(judged.text, "ä!");
    assert_eq!(judged.changes, [("html_entities", 1), ("whitespace", 1)]);
    assert_eq!(judged.rejection.map(|r| r.reason), Some("too_short"));
    data.cleaning = CleaningConfig { html_entities: false, whitespace: false, ..CleaningConfig::default() };
    assert_eq!(
        Judge::new(&data).expect("is right").judge("  &auml;!  ").rejection.map(|r| r.reason),
        Some("many_symbols")
    );
}

#[test]
fn every_text_is_identified_as_one_of_the_candidates() {
    let swedish = "Vintern i Finland är lång och mörk, men på sommaren går solen inte ner i norr alls.";
    let judged = judged(swedish, |f| {
        f.language.candidates = vec!["fin".to_string(), "deu".to_string()];
        f.language.detect = true;
    });
    assert_eq!(judged.language, Some("deu"));
}

#[test]
fn c4_finds_the_end_of_a_sentence_in_other_scripts() {
    fn on(f: &mut FiltersConfig) {
        f.c4.enabled = true;
        f.c4.min_words_per_line = None;
        f.c4.min_sentences = Some(1);
    }
    fn three(f: &mut FiltersConfig) {
        on(f);
        f.c4.min_sentences = Some(3);
    }
    // Urdu, Burmese, Amharic, Armenian, Khmer, Hindi, Tibetan-like Mongolian, Chinese, N'Ko.
    for line in [
        "وہ گھر گیا اور سو گیا۔",
        "သူ အိမ်ပြန်သွားသည်။",
        "እሱ ወደ ቤት ሄደ።",
        "Նա գնաց տուն։",
        "គាត់ទៅផ្ទះ។",
        "वह घर गया।",
        "ᠬᠦᠮᠦᠨ᠃",
        "他回家了。",
        "ߊ߬ ߕߊ߯ߣߍ߲߫ ߛߏ߫߹",
    ] {
        assert_eq!(left(line, on), format!("{line} []"));
    }
    for line in ["وہ گھر گیا اور", "სახლში წავიდა,", "Նա գնաց տուն՝"]
    {
        assert_eq!(found(line, on), "no_lines_left: ", "{line}");
    }
    // In these scripts, a mark ends a sentence without a space after it.
    assert_eq!(found("သူသည်။ငါသည်။မင်းသည်။", three), "kept");
    assert_eq!(found("እሱ ሄደ። እሷ ሄደች።", three), "c4_few_sentences: 2 sentences, at least 3 are wanted");
}
