//! GPT-2's splitting of a text into words, as in the `ByteLevel` pre-tokenizer, without a regular expression
//! engine.
//!
//! The classes of characters are read once from that engine, so that both have the same Unicode tables; the
//! code implements the expression `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
//! ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.

use std::sync::LazyLock;

use tokenizers::utils::SysRegex;

/// Characters from this one on (rare ideographs, private use, tags) are left to the expression engine.
const KNOWN: u32 = 0x2_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

static CLASSES: LazyLock<Option<Vec<Class>>> = LazyLock::new(|| {
    let all: String = (0..KNOWN).filter_map(char::from_u32).collect();
    let mut classes = vec![Class::Other; KNOWN as usize];
    for (expression, class) in
        [(r"\p{L}+", Class::Letter), (r"\p{N}+", Class::Number), (r"\s+", Class::Space)]
    {
        for (start, end) in SysRegex::new(expression).ok()?.find_iter(&all) {
            all[start..end].chars().for_each(|c| classes[c as usize] = class);
        }
    }
    Some(classes)
});

/// Splits text into words; contains the table of classes.
#[derive(Clone, Copy)]
pub(super) struct Gpt2 {
    classes: &'static [Class],
}

impl Gpt2 {
    /// `None` if the expression engine refuses its own classes.
    pub(super) fn new() -> Option<Self> {
        CLASSES.as_deref().map(|classes| Self { classes })
    }

    /// Calls `word` with each word of `text` in turn and returns true; returns false without a call if a
    /// character is not in the table.
    pub(super) fn words<'a>(self, text: &'a str, mut word: impl FnMut(&'a str)) -> bool {
        // Lead bytes from 0xf0 on start the characters of four bytes, which begin at U+10000.
        if text.bytes().any(|byte| byte >= 0xf0) && text.chars().any(|c| c as u32 >= KNOWN) {
            return false;
        }
        let mut start = 0;
        while start < text.len() {
            let end = start + self.word_len(&text[start..]);
            word(&text[start..end]);
            start = end;
        }
        true
    }

    fn class(self, c: char) -> Class {
        self.classes.get(c as usize).copied().unwrap_or(Class::Other)
    }

    /// Bytes of the first word of `text`, which must not be empty.
    fn word_len(self, text: &str) -> usize {
        if let Some(len) = contraction(text) {
            return len;
        }
        let blank = usize::from(text.starts_with(' '));
        let Some(first) = text[blank..].chars().next() else { return blank };
        match self.class(first) {
            Class::Space => self.spaces_len(text),
            class => blank + self.run_len(&text[blank..], class),
        }
    }

    /// Bytes of the characters of `class` at the beginning of `text`.
    fn run_len(self, text: &str, class: Class) -> usize {
        text.char_indices().find(|(_, c)| self.class(*c) != class).map_or(text.len(), |(at, _)| at)
    }

    /// Bytes of the white space at the beginning of `text`. White space of several characters leaves the last
    /// one to a following word.
    fn spaces_len(self, text: &str) -> usize {
        let all = self.run_len(text, Class::Space);
        let last = text[..all].chars().next_back().map_or(0, char::len_utf8);
        if all == text.len() || all == last { all } else { all - last }
    }
}

fn contraction(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [b'\'', b's' | b't' | b'm' | b'd', ..] => Some(2),
        [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rayon::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    fn theirs(text: &str) -> Vec<&str> {
        let mut split = PreTokenizedString::from(text);
        ByteLevel::new(false, true, true).pre_tokenize(&mut split).unwrap();
        let splits = split.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (start, end), _)| &text[start..end]).collect()
    }

    fn ours(text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        assert!(Gpt2::new().unwrap().words(text, |word| words.push(word)));
        words
    }

    #[test]
    fn every_known_character_is_cut_as_the_expression_cuts_it() {
        let all: Vec<char> = (0..KNOWN).filter_map(char::from_u32).collect();
        all.par_chunks(64).for_each(|some| {
            let text = some
                .iter()
                .map(|c| format!("a{c} b {c}{c} 1 {c}x{c}1{c}.\n{c} \t{c}"))
                .collect::<Vec<_>>()
                .concat();
            assert_eq!(ours(&text), theirs(&text));
        });
        assert!(!Gpt2::new().unwrap().words("a \u{20000}", |_| panic!("nothing may be called")));
    }

    proptest! {
        #[test]
        fn any_mix_is_cut_as_the_expression_cuts_it(text in "[ \\t\\n\\r\u{a0}\u{3000}\u{85}a'sdtrvelmä１½,.!\u{301}漢🎶-]{0,24}") {
            prop_assert_eq!(ours(&text), theirs(&text));
        }
    }
}
