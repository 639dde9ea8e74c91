//! The words of a raw text, as an annotator would mark them: Unicode's words (UAX #29), and each punctuation
//! mark or symbol by itself.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// The range of a word in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Range in characters (Unicode code points, as Python counts).
    pub characters: Range<usize>,
    /// Range in bytes.
    pub bytes: Range<usize>,
}

/// Splits `text` into words and symbols, without white space.
pub(in crate::tasks) fn words_of(text: &str) -> Vec<Span> {
    let mut characters = 0;
    let mut spans = Vec::new();
    for (start, word) in text.split_word_bound_indices() {
        let begin = characters;
        characters += word.chars().count();
        if !word.trim().is_empty() {
            spans.push(Span { characters: begin..characters, bytes: start..start + word.len() });
        }
    }
    spans
}

/// Joins words with blanks. Returns the text and the ranges of the words in it.
pub(in crate::tasks) fn joined(words: &[String]) -> (String, Vec<Span>) {
    let mut spans = Vec::with_capacity(words.len());
    let mut characters = 0;
    let mut bytes = 0;
    for word in words {
        let span = Span {
            characters: characters..characters + word.chars().count(),
            bytes: bytes..bytes + word.len(),
        };
        characters = span.characters.end + 1;
        bytes = span.bytes.end + 1;
        spans.push(span);
    }
    (words.join(" "), spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_symbols_have_their_ranges_in_characters() {
        let text = "Åsa's 3.5 € (U.S.) \u{1f469}\u{200d}\u{1f680} äänet,\työ!";
        let found = words_of(text);
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
        assert_eq!(words_of(" \t\n"), []);
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
