//! One document as the filters use it: its lines, words and hashes, each computed once, when the first filter
//! asks for them.

use std::cell::OnceCell;

use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::filter::folded::Folded;

/// A document under judgement, with lazily computed views of its text.
pub(in crate::corpus) struct Page<'a> {
    /// The text.
    pub(in crate::corpus) text: &'a str,
    lines: OnceCell<Vec<&'a str>>,
    words: OnceCell<Words>,
    folded: OnceCell<Folded>,
    counts: OnceCell<Counts>,
}

/// Words of a text, separated by white space, as parallel lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// One hash per word.
    pub(super) hashes: Vec<u64>,
    /// Number of characters of each word.
    pub(super) chars: Vec<u32>,
    /// Number of characters of all words.
    pub(super) total_chars: u64,
    /// Number of words with a letter in them.
    pub(super) alphabetic: u64,
}

/// Numbers of characters by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All characters, including white space.
    pub(super) chars: u64,
    /// White space.
    pub(super) blanks: u64,
    /// Letters and the marks that belong to them.
    pub(super) letters: u64,
    /// Upper-case letters.
    pub(super) capitals: u64,
    /// Digits and other numbers.
    pub(super) digits: u64,
}

impl<'a> Page<'a> {
    /// Creates a page of this text.
    pub(in crate::corpus) fn new(text: &'a str) -> Self {
        Self {
            text,
            lines: OnceCell::new(),
            words: OnceCell::new(),
            folded: OnceCell::new(),
            counts: OnceCell::new(),
        }
    }

    /// Returns the lines that are not blank, without white space at their ends.
    pub(super) fn lines(&self) -> &[&'a str] {
        self.lines
            .get_or_init(|| self.text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect())
    }

    pub(super) fn words(&self) -> &Words {
        self.words.get_or_init(|| Words::new(self.text))
    }

    /// Returns the words in the form that is compared across texts.
    pub(in crate::corpus) fn folded(&self) -> &Folded {
        self.folded.get_or_init(|| Folded::new(self.text))
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.get_or_init(|| Counts::new(self.text))
    }
}

impl Words {
    fn new(text: &str) -> Self {
        let mut words = Self::default();
        for word in text.split_whitespace() {
            let chars = count_chars(word);
            words.hashes.push(xxh3_64(word.as_bytes()));
            words.chars.push(chars as u32);
            words.total_chars += chars;
            words.alphabetic += u64::from(has_letter(word));
        }
        words
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }
}

impl Counts {
    fn new(text: &str) -> Self {
        let mut counts = Self::default();
        for c in text.chars() {
            counts.chars += 1;
            match c {
                'a'..='z' => counts.letters += 1,
                ' ' | '\n' => counts.blanks += 1,
                'A'..='Z' => {
                    counts.letters += 1;
                    counts.capitals += 1;
                }
                '0'..='9' => counts.digits += 1,
                '\0'..='\x7f' => counts.blanks += u64::from(c.is_whitespace()),
                _ => {
                    let is_letter = c.is_alphabetic() || is_mark(c);
                    counts.letters += u64::from(is_letter);
                    counts.capitals += u64::from(is_letter && c.is_uppercase());
                    counts.digits += u64::from(!is_letter && c.is_numeric());
                    counts.blanks += u64::from(c.is_whitespace());
                }
            }
        }
        counts
    }

    /// Returns the number of characters that are not white space.
    pub(super) fn visible(&self) -> u64 {
        self.chars - self.blanks
    }

    /// Returns the number of characters that are neither letters nor digits nor white space.
    pub(super) fn symbols(&self) -> u64 {
        self.visible() - self.letters - self.digits
    }
}

/// True for accents and vowel signs: if they counted as symbols, a third of Hindi would be symbols.
fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c)
}

fn has_letter(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_alphabetic())
        || (!word.is_ascii() && word.chars().any(char::is_alphabetic))
}

/// Counts the characters of a text.
pub(super) fn count_chars(text: &str) -> u64 {
    text.chars().count() as u64
}
