//! Words in a form that can be compared across texts (lower case, letters and digits only), and hashes of
//! sequences of words.

use xxhash_rust::xxh3::xxh3_64;

/// Multiplier of the polynomial hash: odd, so that multiplication is invertible; its bits are those of the
/// golden ratio.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes of a text's words, from which hashes of sequences of any length are computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::corpus) struct Folded {
    /// One hash per word.
    pub(in crate::corpus) hashes: Vec<u64>,
    /// `prefixes[i + 1] = prefixes[i] * BASE + hashes[i]`, so that the hash of any sequence is one
    /// subtraction.
    prefixes: Vec<u64>,
}

impl Folded {
    /// Splits a text into words: sequences of letters and digits, in lower case. Each ideograph and kana is a
    /// word, since these scripts put no space between words.
    pub(in crate::corpus) fn new(text: &str) -> Self {
        let mut folded =
            Self { hashes: Vec::with_capacity(text.len() / 6), prefixes: Vec::with_capacity(text.len() / 6) };
        let mut word = Vec::with_capacity(64);
        for c in text.chars() {
            if c.is_ascii_alphanumeric() {
                word.push(c.to_ascii_lowercase() as u8);
            } else if c.is_ascii() || !c.is_alphanumeric() {
                folded.finish(&mut word);
            } else if is_ideographic(c) {
                folded.finish(&mut word);
                push(&mut word, c);
                folded.finish(&mut word);
            } else {
                c.to_lowercase().for_each(|c| push(&mut word, c));
            }
        }
        folded.finish(&mut word);
        folded.prefixes.push(0);
        let mut prefix = 0u64;
        for &hash in &folded.hashes {
            prefix = prefix.wrapping_mul(BASE).wrapping_add(hash);
            folded.prefixes.push(prefix);
        }
        folded
    }

    fn finish(&mut self, word: &mut Vec<u8>) {
        if !word.is_empty() {
            self.hashes.push(xxh3_64(word));
            word.clear();
        }
    }

    /// Returns the number of words.
    pub(in crate::corpus) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the hash of every sequence of `length` words, in order.
    pub(in crate::corpus) fn sequences(&self, length: usize) -> impl Iterator<Item = u64> {
        let power = BASE.wrapping_pow(length as u32);
        let ends = self.prefixes.iter().skip(length);
        ends.zip(&self.prefixes).map(move |(end, start)| {
            let sum = end.wrapping_sub(start.wrapping_mul(power)).wrapping_add(length as u64);
            // The low bits of a product depend only on low bits, so the high bits are folded in.
            (sum ^ (sum >> 32)).wrapping_mul(BASE)
        })
    }
}

fn push(word: &mut Vec<u8>, c: char) {
    word.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn is_ideographic(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_punctuation_make_no_difference() {
        assert_eq!(Folded::new("Äiti, ISÄ -- (ja) 3 lasta!"), Folded::new("äiti isä ja 3 lasta"));
        assert_ne!(Folded::new("äiti isä"), Folded::new("äitiisä"));
        assert_eq!(Folded::new("日本語のテスト ok").len(), 8);
        assert_eq!(Folded::new(" ,. ").len(), 0);
    }

    #[test]
    fn a_sequence_has_the_same_hash_at_any_position() {
        let long = Folded::new("a b c d e f");
        let short = Folded::new("c d e");
        let within: Vec<u64> = long.sequences(3).collect();
        assert_eq!(within.len(), 4);
        assert_eq!(short.sequences(3).collect::<Vec<_>>(), within[2..3]);
        assert_eq!(short.sequences(4).count(), 0);
        assert_ne!(Folded::new("a a").sequences(1).next(), Folded::new("a a").sequences(2).next());
    }
}
