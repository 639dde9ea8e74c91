//! Shingles: the hashes of all sequences of `n` consecutive words of a text.
//!
//! A word is a sequence of letters and digits in lower case; punctuation and spacing are ignored. In scripts
//! that are written without spaces, each character is a word, so that a shingle of five is about three words
//! of Chinese.

/// Calls `shingle` with a well-mixed hash of each `shingle_words` consecutive words, in order, with
/// repetitions.
///
/// A text with fewer words is one shingle of all its words; a text without words is one shingle of all its
/// characters.
pub(super) fn for_each_shingle(text: &str, shingle_words: usize, mut shingle: impl FnMut(u32)) {
    let mut rolling = Rolling::new(shingle_words.max(1));
    for_each_word(text, |word| {
        if let Some(hash) = rolling.push(word) {
            shingle(hash);
        }
    });
    match rolling.filled {
        0 => shingle((mix(text.trim().bytes().fold(WORD_START, word_step)) >> 32) as u32),
        filled if filled < rolling.window.len() => shingle(rolling.hash()),
        _ => {}
    }
}

/// FNV-1a's start and factor, followed by a finaliser: 64 bits are ample for the words of a corpus.
const WORD_START: u64 = 0xcbf2_9ce4_8422_2325;
const WORD_FACTOR: u64 = 0x0100_0000_01b3;

#[inline(always)]
fn word_step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(WORD_FACTOR)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
#[inline(always)]
pub(super) fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The lower-case form of each ASCII letter or digit; 0 for characters that end a word.
const ASCII_WORD: [u8; 128] = {
    let mut table = [0; 128];
    let mut byte = 0u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            table[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    table
};

#[inline(always)]
fn for_each_word(text: &str, mut word: impl FnMut(u64)) {
    let bytes = text.as_bytes();
    let mut hash = WORD_START;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte < 128 {
            at += 1;
            let lower = ASCII_WORD[byte as usize];
            if lower != 0 {
                hash = word_step(hash, lower);
                continue;
            }
        } else {
            let Some(character) = text[at..].chars().next() else { break };
            at += character.len_utf8();
            if character.is_alphanumeric() && !written_without_spaces(character) {
                hash = character.to_lowercase().fold(hash, fold_character);
                continue;
            }
            if character.is_alphanumeric() {
                end_word(&mut hash, &mut word);
                hash = fold_character(hash, character);
            }
        }
        end_word(&mut hash, &mut word);
    }
    end_word(&mut hash, &mut word);
}

/// Emits the word that has been read; a word without letters is skipped, since its hash would be the start
/// value.
#[inline(always)]
fn end_word(hash: &mut u64, word: &mut impl FnMut(u64)) {
    if *hash != WORD_START {
        word(mix(*hash));
        *hash = WORD_START;
    }
}

fn fold_character(hash: u64, character: char) -> u64 {
    character.encode_utf8(&mut [0; 4]).bytes().fold(hash, word_step)
}

/// Returns true for Han, kana, Thai, Lao, Myanmar and Khmer.
fn written_without_spaces(character: char) -> bool {
    matches!(u32::from(character),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3005..=0x3007 | 0x3040..=0x30ff | 0x31f0..=0x31ff
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0xff66..=0xff9f | 0x2_0000..=0x3_ffff)
}

/// A polynomial over the hashes of the last words, modulo 2^64 (Karp and Rabin 1987).
struct Rolling {
    window: Vec<u64>,
    oldest: usize,
    filled: usize,
    sum: u64,
    /// `BASE` to the number of words.
    power: u64,
}

/// Odd, so that no power of it is 0 modulo 2^64.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rolling {
    fn new(words: usize) -> Self {
        let power = (0..words).fold(1u64, |power, _| power.wrapping_mul(BASE));
        Self { window: vec![0; words], oldest: 0, filled: 0, sum: 0, power }
    }

    /// Adds a word; returns the hash of the window once it is full.
    #[inline(always)]
    fn push(&mut self, word: u64) -> Option<u32> {
        let leaving = std::mem::replace(&mut self.window[self.oldest], word);
        self.oldest = if self.oldest + 1 == self.window.len() { 0 } else { self.oldest + 1 };
        // Until the window is full, the word that leaves it is a zero.
        self.sum =
            self.sum.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(leaving.wrapping_mul(self.power));
        self.filled = (self.filled + 1).min(self.window.len());
        (self.filled == self.window.len()).then(|| self.hash())
    }

    fn hash(&self) -> u32 {
        (mix(self.sum) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn shingles(text: &str, words: usize) -> Vec<u32> {
        let mut found = Vec::new();
        for_each_shingle(text, words, |s| found.push(s));
        found
    }

    #[test]
    fn case_punctuation_and_spacing_are_ignored_and_words_are_not() {
        let same = shingles("The cat -- it's 7 years old!", 3);
        assert_eq!(shingles("the CAT it S\n\n7 years, (old)", 3), same);
        assert_eq!(same.len(), 5);
        assert_ne!(shingles("the cat it s 8 years old", 3), same);
        assert_eq!(shingles("ÄITI näki Äidin", 1), shingles("äiti, NÄKI: äidin", 1));
    }

    #[test]
    fn a_short_text_is_one_shingle() {
        for text in ["one two", "one", "", "?!", "✓✓"] {
            assert_eq!(shingles(text, 5).len(), 1, "{text}");
        }
        assert_ne!(shingles("?!", 5), shingles("!?", 5));
        assert_ne!(shingles("one two", 5), shingles("two one", 5));
    }

    #[test]
    fn text_without_spaces_gives_a_shingle_for_each_character() {
        assert_eq!(shingles("我能吞下玻璃而不伤身体。", 5).len(), 11 - 5 + 1);
        assert_eq!(shingles("私はガラスを食べられます", 2).len(), 11);
        assert_eq!(shingles("中a国", 1).len(), 3);
    }

    proptest! {
        #[test]
        fn the_rolling_hash_equals_the_hash_of_each_window_alone(text in "([a-d]{1,3} ){0,40}", words in 1usize..7) {
            let all: Vec<&str> = text.split_whitespace().collect();
            let windows: Vec<u32> = all.windows(words).flat_map(|window| shingles(&window.join(" "), words)).collect();
            if all.len() >= words {
                prop_assert_eq!(shingles(&text, words), windows);
            }
        }

        #[test]
        fn any_text_has_shingles(text in any::<String>(), words in 1usize..9) {
            prop_assert!(!shingles(&text, words).is_empty());
        }
    }

    #[test]
    fn different_shingles_have_different_hashes() {
        let words: Vec<String> = (0..20_000).map(|i| format!("w{i}")).collect();
        let distinct: BTreeSet<u32> = shingles(&words.join(" "), 5).into_iter().collect();
        // 20,000 of 2^32 values: 0.05 collisions are expected.
        assert!(distinct.len() >= 19_996 - 2, "{}", distinct.len());
    }
}
