//! Chooses runs of words to mask: lengths from a geometric distribution, places at random, until the share is
//! met (Joshi et al., "SpanBERT", TACL 2020, section 3.1 and `masking.py` of its authors).

use crate::batches::classes::{ENDS, ORDINARY, STARTS, WORD_TOKENS_MAX};
use base::rng::Stream;

/// Parameter of the geometric distribution: 3.8 words on average.
const SUCCESS: f64 = 0.2;
/// The longest span in words.
const WORDS_MAX: u32 = 10;

/// Indices of the random words for spans in the stream: above those of the tokens' places.
const SPANS: u64 = 1 << 40;
/// Index of the random word that rounds the budget.
const ROUNDING: u64 = 1 << 41;

/// Buffers that are reused for the next row.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// First token of each word, and the token after its last one.
    words: Vec<(u32, u32)>,
    /// For each word, true if it is chosen as a whole or in part.
    taken: Vec<bool>,
    /// Chosen places, and the random word that determines the replacement of their span.
    chosen: Vec<(u32, u32)>,
}

impl Buffers {
    /// The chosen places, in order.
    pub(super) fn chosen(&self) -> &[(u32, u32)] {
        &self.chosen
    }
}

/// Chooses `probability` of the tokens that may be masked; a remaining fraction of a token is rounded up with
/// that probability.
///
/// A span begins with a word, stays within a segment, and ends early before a word that is already chosen, or
/// when the share is met.
pub(super) fn choose(
    probability: f64,
    stream: Stream,
    ids: &[u32],
    class: impl Fn(u32) -> u8,
    buffers: &mut Buffers,
) {
    let maskable = buffers.find_words(ids, class);
    let mut left =
        (probability.clamp(0.0, 1.0) * f64::from(maskable) + stream.uniform(ROUNDING)).floor() as u32;
    let words = buffers.words.len() as u64;
    // If most words are chosen already, finding a free word by chance takes too long: the rest is chosen in
    // order.
    let tries = 8 * words + 64;
    for attempt in 0..tries {
        if left == 0 {
            break;
        }
        let [length, low, high, fate] = stream.words(SPANS + attempt);
        let first = (u128::from(u64::from(low) | u64::from(high) << 32) * u128::from(words)) >> 64;
        left -= buffers.take(first as usize, span_words(length), left, fate);
    }
    let mut word = 0;
    while left > 0 && word < buffers.words.len() {
        let [.., fate] = stream.words(SPANS + tries + word as u64);
        left -= buffers.take(word, 1, left, fate);
        word += 1;
    }
    buffers.chosen.sort_unstable();
}

/// Number of words of a span: `P(n) ~ 0.2 x 0.8^(n - 1)` for n from 1 to 10.
fn span_words(random: u32) -> u32 {
    let mut below = 1.0 - (1.0 - SUCCESS).powi(WORDS_MAX as i32);
    below *= (f64::from(random) + 0.5) / (1u64 << 32) as f64;
    let mut tail = 1.0;
    for words in 1..WORDS_MAX {
        tail *= 1.0 - SUCCESS;
        if below < 1.0 - tail {
            return words;
        }
    }
    WORDS_MAX
}

impl Buffers {
    /// Finds the words of a row and returns their number of tokens.
    #[expect(clippy::needless_bitwise_bool, reason = "branches here would be mispredicted")]
    fn find_words(&mut self, ids: &[u32], class: impl Fn(u32) -> u8) -> u32 {
        self.chosen.clear();
        // One more than there may be: for what is written of a token that is in no word.
        self.words.resize(ids.len() + 1, (0, 0));
        let mut words = 0;
        let mut start = 0;
        let mut length = 0;
        let mut starts_next = true;
        let mut maskable = 0;
        for (place, &id) in (0..).zip(ids) {
            let class = class(id);
            let is_ordinary = class & ORDINARY != 0;
            let begins = starts_next | (class & STARTS != 0) | (length == WORD_TOKENS_MAX);
            start = if begins { place } else { start };
            length = if begins { 1 } else { length + 1 };
            starts_next = !is_ordinary | (class & ENDS != 0);
            words += usize::from(is_ordinary & begins);
            self.words[words - usize::from(is_ordinary)] = (start, place + 1);
            maskable += u32::from(is_ordinary);
        }
        self.words.truncate(words);
        self.taken.clear();
        self.taken.resize(words, false);
        maskable
    }

    /// Chooses up to `count` words from word `first` on, with at most `most` tokens; returns the number of
    /// chosen tokens.
    fn take(&mut self, first: usize, count: u32, most: u32, fate: u32) -> u32 {
        let before = self.chosen.len();
        let mut left = most;
        let mut last_end = None;
        for word in first..self.words.len().min(first + count as usize) {
            let (start, end) = self.words[word];
            // Between two words that are not adjacent there is a special token.
            if self.taken[word] || left == 0 || last_end.is_some_and(|last_end| last_end != start) {
                break;
            }
            self.taken[word] = true;
            let tokens = left.min(end - start);
            self.chosen.extend((start..start + tokens).map(|place| (place, fate)));
            left -= tokens;
            last_end = Some(end);
        }
        (self.chosen.len() - before) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Purpose;

    /// 0 is special; an odd token begins a word.
    fn class(id: u32) -> u8 {
        match id {
            0 => 0,
            odd if odd % 2 == 1 => ORDINARY | STARTS,
            _ => ORDINARY,
        }
    }

    #[test]
    fn spans_have_the_lengths_of_the_paper() {
        let stream = Stream::new(1, Purpose::Test, 0);
        let mut counts = [0u32; 11];
        for index in 0..100_000 {
            counts[span_words(stream.words(index)[0]) as usize] += 1;
        }
        let mean = counts.iter().zip(0u32..).map(|(n, words)| f64::from(n * words)).sum::<f64>() / 100_000.0;
        assert!((mean - 3.8).abs() < 0.05, "{mean}");
        assert!(counts[0] == 0 && counts[1..].is_sorted_by(|a, b| a > b), "{counts:?}");
        assert_eq!((span_words(0), span_words(u32::MAX)), (1, 10));
    }

    #[test]
    fn spans_begin_with_words_stay_in_segments_and_meet_the_share() {
        let ids: Vec<u32> =
            (0..400).map(|t| if t % 50 == 0 { 0 } else { [1, 2, 3, 5, 4, 6][t % 6] }).collect();
        let mut buffers = Buffers::default();
        for (sample, share) in (0..200).zip([0.15, 0.5, 0.9, 1.0].into_iter().cycle()) {
            choose(share, Stream::new(2, Purpose::Mask, sample), &ids, class, &mut buffers);
            let expected = share * 392.0;
            assert!(
                (buffers.chosen.len() as f64 - expected).abs() < 1.0,
                "{share}: {}",
                buffers.chosen.len()
            );
            assert!(buffers.chosen.is_sorted_by(|a, b| a.0 < b.0));
            assert!(buffers.chosen.iter().all(|(place, _)| ids[*place as usize] != 0));
            // A run that does not begin with a word would be the end of a word whose beginning is not masked.
            assert!(buffers.chosen.iter().all(|&(place, _)| {
                let starts = ids[place as usize] % 2 == 1 || ids[place as usize - 1] == 0;
                starts || buffers.chosen.binary_search_by_key(&(place - 1), |c| c.0).is_ok()
            }));
        }
    }

    #[test]
    fn a_row_without_words_has_no_span() {
        let mut buffers = Buffers::default();
        choose(1.0, Stream::new(2, Purpose::Mask, 1), &[0, 0], class, &mut buffers);
        choose(1.0, Stream::new(2, Purpose::Mask, 1), &[], class, &mut buffers);
        assert!(buffers.chosen().is_empty());
    }
}
