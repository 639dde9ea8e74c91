//! Tests each step by examples, and for any text that cleaning twice equals cleaning once.

use proptest::prelude::*;

use super::*;

fn all() -> CleaningConfig {
    CleaningConfig { html_tags: true, ..CleaningConfig::default() }
}

fn clean(text: &str) -> String {
    Cleaner::new(&CleaningConfig::default()).clean(text).0.into_owned()
}

fn without_tags(text: &str) -> String {
    Cleaner::new(&all()).clean(text).0.into_owned()
}

#[test]
fn a_clean_text_is_not_copied() {
    for text in [
        "",
        "Hyvää päivää, Äänekoski!",
        "one\ntwo\n\nthree – “quoted” … 日本語 👩‍👩‍👧",
        "R&D; a < b",
        "नमस्ते",
        "می‌خواهم",
    ] {
        let (cleaned, changed) = Cleaner::new(&all()).clean(text);
        assert!(matches!(cleaned, Cow::Borrowed(_)), "{text:?} became {cleaned:?}");
        assert!(changed.is_empty());
    }
}

#[test]
fn letters_and_accents_are_composed() {
    assert_eq!(clean("pa\u{308}iva\u{308}\u{308}"), "päivä\u{308}");
    assert_eq!(clean("\u{212b}ngstro\u{308}m"), "Ångström");
    assert_eq!(clean("a\u{200b}\u{308}"), "ä", "what stood between them is gone first");
    assert_eq!(clean("a&#776;"), "ä", "also when it was encoded");
}

#[test]
fn invisible_characters_are_removed_and_separators_become_line_ends() {
    assert_eq!(
        clean("a\0b\u{7}c\u{7f}d\u{9b}e\u{ad}f\u{feff}g\u{200b}h\u{202e}i\u{2066}j\u{ffff}k\u{1fffe}l"),
        "abcdefghijkl"
    );
    assert_eq!(clean("one\u{c}two\u{b}three\u{85}four"), "one\ntwo\nthree\nfour");
    assert_eq!(
        clean("\u{fffd}\u{e000}"),
        "\u{fffd}\u{e000}",
        "a replacement character and private use show something"
    );
}

#[test]
fn joiners_are_kept_after_scripts_that_they_shape() {
    for kept in
        ["می\u{200c}خواهم", "क\u{94d}\u{200d}ष", "👨\u{200d}👩\u{200d}👧", "🏴\u{e0067}\u{e0062}\u{e007f}"]
    {
        assert_eq!(clean(kept), kept);
    }
    assert_eq!(clean("\u{200d}web\u{200c}site \u{200d}x"), "website x");
}

#[test]
fn white_space_is_normalized() {
    assert_eq!(
        clean("  a \t b\u{a0}\u{a0}c  \r\n\r\n\r\n\r\nd\r e\u{2028}f\u{3000}g \n"),
        "a b c\n\nd\ne\nf g"
    );
    assert_eq!(clean("a\r\n \u{a0}\r\nb"), "a\n\nb", "a line of blanks is a blank line");
    assert_eq!(clean("a\r\nb\n\nc"), "a\nb\n\nc");
    assert_eq!(clean(" \n\t\u{2003}\n"), "");
}

#[test]
fn references_are_decoded_after_any_number_of_escapes() {
    assert_eq!(clean("&auml;&#228;&#xE4;&#XE4;"), "ääää");
    assert_eq!(clean("a &lt; b &amp;amp;&amp;lt; c &amp;amp;amp;auml;"), "a < b &< c ä");
    assert_eq!(clean("Then &amp; Now, 5&nbsp;&euro;, &#8220;x&#8221;"), "Then & Now, 5 €, “x”");
    assert_eq!(clean("&#150; &#0;"), "– \u{fffd}", "as browsers read them");
}

#[test]
fn text_that_is_not_a_reference_is_kept() {
    for text in [
        "&ampamp;",
        "&copy2;",
        "AT&T;",
        "x?a=1&copy=2&lt=3",
        "R&D",
        "&;",
        "&#;",
        "&#x;",
        "& amp;",
        "&ämp;",
        "&nosuchname;",
        "&1;",
    ] {
        assert_eq!(clean(text), text);
    }
    assert_eq!(
        clean("&#&#51;8; &am&#112;; &am&shy;p;"),
        "&#&#51;8; &am&#112;; &am&shy;p;",
        "nor one made of parts"
    );
}

#[test]
fn tags_are_removed() {
    assert_eq!(without_tags("<p>Hyvä <b>el</b>okuva.<br /><br />Katso!</p>"), "Hyvä elokuva.\n\nKatso!");
    assert_eq!(
        without_tags("a<script type=x>if (a<b) {}</SCRIPT >b<style>p{}</style>c<!-- <b> -->d"),
        "a\nb\ncd"
    );
    assert_eq!(without_tags("<td>1</td><td>2</td>"), "1 2");
    assert_eq!(without_tags("a &lt;i&gt;b&lt;/i&gt;"), "a b", "also when they were escaped");
    for text in ["a < b and c > d", "<user@host.fi>", "I <3 you", "x<y>z", "<b", "</", "<!--", "<bé>"] {
        assert_eq!(without_tags(text), text);
    }
    assert_eq!(without_tags("<spa<b>n>"), "< spa n>", "parts do not grow together");
    assert_eq!(without_tags("<b<script>&gt;&"), "< b\n>&");
    assert_eq!(without_tags("<script><b></script"), "</script", "an end tag that nothing closes");
}

#[test]
fn hostile_nesting_takes_linear_time() {
    for piece in ["&amp;", "&amp", "<b", "<!--", "<script>", "</script", "<", "&", "&#38;", "<a>&", "\u{301}"]
    {
        let text = piece.repeat(200_000);
        let cleaned = without_tags(&text);
        assert_eq!(without_tags(&cleaned), cleaned, "{piece}");
    }
}

#[test]
fn each_step_that_changed_something_is_named_once() {
    let (_, changed) = Cleaner::new(&all()).clean("a\u{308} \0 <i>b&uuml;</i>&shy; ");
    assert_eq!(changed, ["control_characters", "unicode_nfc", "html_entities", "html_tags", "whitespace"]);
    let none = CleaningConfig {
        unicode_nfc: false,
        control_characters: false,
        whitespace: false,
        html_entities: false,
        html_tags: false,
    };
    assert_eq!(Cleaner::new(&none).clean("a\u{308} \0 <i>&uuml;</i> ").0, "a\u{308} \0 <i>&uuml;</i> ");
}

/// Generates texts of pieces that open, close, compose, vanish or separate.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "&",
        "&amp;",
        "amp",
        ";",
        "#",
        "&#",
        "x",
        "38",
        "51",
        "&#51;",
        "&#112;",
        "&semi;",
        "&num;",
        "&lt;",
        "&gt;",
        "&shy;",
        "&nbsp;",
        "&#x301;",
        "&#x37e;",
        "&NewLine;",
        "&Tab;",
        "<",
        ">",
        "<b>",
        "</b>",
        "b",
        "p",
        "<p>",
        "/",
        "<!--",
        "-->",
        "--",
        "<!",
        "<script>",
        "</script>",
        "script",
        "<br/>",
        "<td>",
        " ",
        "\n",
        "\r",
        "\t",
        "\u{a0}",
        "\u{200b}",
        "\u{200d}",
        "\u{200c}",
        "\u{ad}",
        "\u{301}",
        "\u{338}",
        "e",
        "\u{37e}",
        "\u{212a}",
        "\u{0}",
        "\u{85}",
        "\u{2028}",
        "ä",
        "क",
        "👩",
        "\u{1161}",
        "\u{1100}",
        "\u{323}",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

fn steps() -> impl Strategy<Value = CleaningConfig> {
    any::<[bool; 5]>().prop_map(|[unicode_nfc, control_characters, whitespace, html_entities, html_tags]| {
        CleaningConfig { unicode_nfc, control_characters, whitespace, html_entities, html_tags }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn cleaning_twice_equals_cleaning_once(text in prop_oneof![hostile(), any::<String>()], tags in any::<bool>()) {
        let cleaner = Cleaner::new(&CleaningConfig { html_tags: tags, ..CleaningConfig::default() });
        let once = cleaner.clean(&text).0.into_owned();
        let (twice, changed) = cleaner.clean(&once);
        prop_assert_eq!(&twice, &once);
        prop_assert!(changed.is_empty(), "{:?}", changed);
    }

    #[test]
    fn any_choice_of_steps_takes_any_text(text in prop_oneof![hostile(), any::<String>()], steps in steps()) {
        let cleaner = Cleaner::new(&steps);
        let (cleaned, changed) = cleaner.clean(&text);
        prop_assert_eq!(cleaned != text, !changed.is_empty() && cleaned != text);
        prop_assert!(!changed.is_empty() || cleaned == text);
    }
}
