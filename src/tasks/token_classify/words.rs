//! The words of a raw text, as people would mark them: Unicode's words (UAX #29), and each sign by itself.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// The place of a word in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// In characters (Unicode code points, as Python counts).
    pub characters: Range<usize>,
    /// In bytes.
    pub bytes: Range<usize>,
}

/// The words and signs of `text`, without white space.
pub(super) fn words(text: &str) -> Vec<Span> {
    let mut characters = 0;
    let span = |(start, word): (usize, &str)| {
        let begin = characters;
        characters += word.chars().count();
        let span = Span { characters: begin..characters, bytes: start..start + word.len() };
        (!word.trim().is_empty()).then_some(span)
    };
    text.split_word_bound_indices().filter_map(span).collect()
}

/// Words that were given one by one: the text that they make with a blank between two, and their places in
/// it.
pub(super) fn joined(words: &[String]) -> (String, Vec<Span>) {
    let (mut characters, mut bytes) = (0, 0);
    let span = |word: &String| {
        let span = Span {
            characters: characters..characters + word.chars().count(),
            bytes: bytes..bytes + word.len(),
        };
        (characters, bytes) = (span.characters.end + 1, span.bytes.end + 1);
        span
    };
    let spans = words.iter().map(span).collect();
    (words.join(" "), spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_signs_have_their_places_in_characters() {
        let text = "Åsa's 3.5 € (U.S.) \u{1f469}\u{200d}\u{1f680} äänet,\työ!";
        let found = words(text);
        let characters: Vec<char> = text.chars().collect();
        for span in &found {
            let word = &text[span.bytes.clone()];
            assert_eq!(characters[span.characters.clone()].iter().collect::<String>(), word);
        }
        let texts: Vec<&str> = found.into_iter().map(|span| &text[span.bytes]).collect();
        assert_eq!(
            texts,
            [
                "Åsa's",
                "3.5",
                "€",
                "(",
                "U.S",
                ".",
                ")",
                "\u{1f469}\u{200d}\u{1f680}",
                "äänet",
                ",",
                "yö",
                "!"
            ]
        );
        assert_eq!(words(" \t\n"), []);
    }

    #[test]
    fn given_words_are_joined_by_blanks() {
        let (text, spans) = joined(&["Åsa".to_string(), "!".to_string()]);
        assert_eq!(text, "Åsa !");
        let want = [Span { characters: 0..3, bytes: 0..4 }, Span { characters: 4..5, bytes: 5..6 }];
        assert_eq!(spans, want);
        assert_eq!(joined(&[]), (String::new(), vec![]));
    }
}
