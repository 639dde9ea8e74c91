//! Learns the merges of a byte-pair encoding from counted words (Sennrich et al., ACL 2016).
//!
//! The result is a function of the counts alone: ties go to the pair with the smaller ids. (The trainer of
//! the `tokenizers` crate iterates over randomly seeded hash maps and can order equal merges differently in
//! each process.)

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::tokenizer::hash::FastMap;

type Pair = (u32, u32);

/// A word as ids of its symbols, and its count.
pub(super) struct Word {
    pub(super) symbols: Vec<u32>,
    pub(super) count: u64,
}

/// Result of training: merges in the order of their rank, and the spelling of every id.
pub(super) struct Learned {
    pub(super) merges: Vec<Pair>,
    pub(super) spellings: Vec<String>,
}

/// Merges the most frequent pair until the vocabulary has `vocab_size` entries or no pair occurs
/// `min_frequency` times.
///
/// `spellings` are the existing entries; those that begin with `prefix` (empty, or WordPiece's `##`) lose it
/// when they are appended to another one. `progress` is called with the size of the vocabulary after each
/// merge.
pub(super) fn learn(
    words: Vec<Word>,
    spellings: Vec<String>,
    prefix: &'static str,
    vocab_size: usize,
    min_frequency: u64,
    mut progress: impl FnMut(usize),
) -> Learned {
    let mut state = State::new(words, spellings, prefix);
    let mut merges = Vec::new();
    while state.spellings.len() < vocab_size {
        let Some((pair, count)) = state.most_frequent() else { break };
        if count < min_frequency.max(1) {
            break;
        }
        state.merge(pair);
        merges.push(pair);
        progress(state.spellings.len());
    }
    Learned { merges, spellings: state.spellings }
}

struct State {
    words: Vec<Word>,
    spellings: Vec<String>,
    prefix: &'static str,
    /// Two merges can spell the same entry (`a` + `bc`, `ab` + `c`): they share its id.
    ids: HashMap<String, u32>,
    pairs: FastMap<Pair, Occurrences>,
    /// The pair with the largest count first, then the smallest pair. Counts in the queue may be out of date.
    queue: BinaryHeap<(u64, Reverse<Pair>)>,
    /// The symbols of a word before a merge, and for each one whether it becomes part of the new symbol.
    old: Vec<u32>,
    is_merged: Vec<bool>,
}

#[derive(Default)]
struct Occurrences {
    count: u64,
    /// Words that contain the pair, with repetitions, and some that no longer do.
    words: Vec<u32>,
}

impl State {
    fn new(words: Vec<Word>, spellings: Vec<String>, prefix: &'static str) -> Self {
        let ids = spellings.iter().enumerate().map(|(id, spelling)| (spelling.clone(), id as u32)).collect();
        let mut pairs: FastMap<Pair, Occurrences> = FastMap::default();
        for (index, word) in words.iter().enumerate() {
            for pair in word.symbols.windows(2) {
                let seen = pairs.entry((pair[0], pair[1])).or_default();
                seen.count += word.count;
                seen.words.push(index as u32);
            }
        }
        let queue = pairs.iter().map(|(pair, seen)| (seen.count, Reverse(*pair))).collect();
        Self { words, spellings, prefix, ids, pairs, queue, old: Vec::new(), is_merged: Vec::new() }
    }

    fn most_frequent(&mut self) -> Option<(Pair, u64)> {
        while let Some((queued, Reverse(pair))) = self.queue.pop() {
            let count = self.pairs.get(&pair).map_or(0, |seen| seen.count);
            if count == queued && count > 0 {
                return Some((pair, count));
            }
            // A pair whose count grew was queued again at that time; a pair whose count shrank is queued
            // here.
            if count > 0 && count < queued {
                self.queue.push((count, Reverse(pair)));
            }
        }
        None
    }

    fn merge(&mut self, pair: Pair) {
        let first = &self.spellings[pair.0 as usize];
        let second = &self.spellings[pair.1 as usize];
        let spelling = format!("{first}{}", second.strip_prefix(self.prefix).unwrap_or(second));
        let next = self.spellings.len() as u32;
        let id = *self.ids.entry(spelling.clone()).or_insert(next);
        if id == next {
            self.spellings.push(spelling);
        }
        let mut holders = self.pairs.remove(&pair).map(|seen| seen.words).unwrap_or_default();
        holders.sort_unstable();
        holders.dedup();
        let mut grown: Vec<Pair> = Vec::new();
        for index in holders {
            self.merge_in_word(index, pair, id, &mut grown);
        }
        grown.sort_unstable();
        grown.dedup();
        for pair in grown {
            if let Some(seen) = self.pairs.get(&pair) {
                self.queue.push((seen.count, Reverse(pair)));
            }
        }
    }

    /// Replaces each `pair` in a word by `id`, and corrects the counts of the adjacent pairs.
    fn merge_in_word(&mut self, index: u32, pair: Pair, id: u32, grown: &mut Vec<Pair>) {
        let Self { words, pairs, old, is_merged, .. } = self;
        let word = &mut words[index as usize];
        std::mem::swap(&mut word.symbols, old);
        word.symbols.clear();
        is_merged.clear();
        while is_merged.len() < old.len() {
            let rest = &old[is_merged.len()..];
            let found = rest.starts_with(&[pair.0, pair.1]);
            word.symbols.push(if found { id } else { rest[0] });
            is_merged.extend_from_slice(if found { &[true, true] } else { &[false] });
        }
        for (place, gone) in old.windows(2).enumerate() {
            if (is_merged[place] || is_merged[place + 1])
                && let Some(seen) = pairs.get_mut(&(gone[0], gone[1]))
            {
                seen.count -= word.count;
            }
        }
        // `place` is the start of the symbol in the old word; an `id` that was already there changes nothing.
        let mut place = 0;
        for new in word.symbols.windows(2) {
            let is_new = is_merged[place];
            place += if is_new { 2 } else { 1 };
            if is_new || is_merged[place] {
                let seen = pairs.entry((new[0], new[1])).or_default();
                seen.count += word.count;
                seen.words.push(index);
                grown.push((new[0], new[1]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn learn_from(words: &[(&str, u64)], vocab_size: usize) -> Vec<String> {
        let alphabet: Vec<String> = ('a'..='z').map(String::from).collect();
        let words = words
            .iter()
            .map(|(word, count)| Word {
                symbols: word.bytes().map(|b| u32::from(b - b'a')).collect(),
                count: *count,
            })
            .collect();
        learn(words, alphabet, "", vocab_size, 2, |_| {}).spellings.split_off(26)
    }

    #[test]
    fn the_most_frequent_pair_comes_first() {
        // e+s 9, s+t 9 (the smaller pair wins the tie), then es+t 9, l+o 7, lo+w 7, ... as in Sennrich et al.
        let learned = learn_from(&[("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)], 32);
        assert_eq!(learned, ["es", "est", "lo", "low", "ew", "new"]);
    }

    #[test]
    fn repeated_letters_are_merged_without_overlap() {
        // aa aa a: of the equally frequent pairs, (aa, a) has the smaller ids.
        assert_eq!(learn_from(&[("aaaaa", 3)], 30), ["aa", "aaa", "aaaaa"]);
    }

    /// A simple implementation for comparison: all pairs are counted again before each merge.
    fn learn_slowly(words: &[(String, u64)], vocab_size: usize) -> Vec<String> {
        let mut spellings: Vec<String> = ('a'..='z').map(String::from).collect();
        let mut words: Vec<(Vec<usize>, u64)> = words
            .iter()
            .map(|(word, count)| (word.bytes().map(|b| usize::from(b - b'a')).collect(), *count))
            .collect();
        while spellings.len() < vocab_size {
            let mut counts = std::collections::BTreeMap::new();
            for (word, count) in &words {
                word.windows(2).for_each(|pair| *counts.entry((pair[0], pair[1])).or_insert(0) += count);
            }
            let Some((&(a, b), _)) = counts
                .iter()
                .max_by_key(|(pair, count)| (**count, Reverse(**pair)))
                .filter(|(_, c)| **c >= 2)
            else {
                break;
            };
            let merged = format!("{}{}", spellings[a], spellings[b]);
            let id = spellings.iter().position(|s| *s == merged).unwrap_or(spellings.len());
            if id == spellings.len() {
                spellings.push(merged);
            }
            for (word, _) in &mut words {
                let mut place = 0;
                while place + 1 < word.len() {
                    if word[place..place + 2] == [a, b] {
                        word.splice(place..place + 2, [id]);
                    }
                    place += 1;
                }
            }
        }
        spellings.split_off(26)
    }

    proptest! {
        #[test]
        fn counts_are_kept_right_over_many_merges(words in prop::collection::btree_map("[abc]{1,12}", 1u64..9, 1..12)) {
            let words: Vec<(String, u64)> = words.into_iter().collect();
            let borrowed: Vec<(&str, u64)> = words.iter().map(|(word, count)| (word.as_str(), *count)).collect();
            prop_assert_eq!(learn_from(&borrowed, 60), learn_slowly(&words, 60));
        }
    }

    #[test]
    fn rare_pairs_are_left_alone() {
        assert_eq!(learn_from(&[("xy", 1), ("zz", 2)], 100), ["zz"]);
    }
}
