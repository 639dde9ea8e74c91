//! Learns the pieces of a unigram language model from counted words (Kudo, ACL 2018): it begins with many
//! frequent strings and alternates expectation maximisation with dropping the pieces that the likelihood
//! needs least, until the vocabulary has its size.
//!
//! Sums are taken over fixed parts in a fixed order, so the result does not depend on the number of threads.

use rayon::prelude::*;

use crate::tokenizer::hash::FastMap;
use crate::tokenizer::lattice::{Lattice, NO_PIECE, Piece, Trie};

/// The longest piece in characters (SentencePiece's `max_sentencepiece_length`).
const PIECE_CHARACTERS_MAX: usize = 16;

/// Number of seeds per wanted piece.
const SEEDS_PER_PIECE: usize = 8;

/// Seeds are taken from the most frequent words, up to this number of bytes.
const SEED_BYTES_MAX: usize = 3 << 20;

/// Share of the pieces that remain after a round (SentencePiece's `shrinking_factor`).
const SHRINKING: f64 = 0.75;

/// Rounds of expectation maximisation before each pruning.
const SUB_ITERATIONS: usize = 2;

/// Number of parts whose sums are added in order.
const PARTS: usize = 32;

type Words = [(Box<str>, u64)];

/// The pieces to learn.
pub(super) struct Wanted<'a> {
    /// Characters that always stay pieces.
    pub(super) characters: &'a [char],
    /// Strings that must not become pieces.
    pub(super) reserved: &'a [String],
    /// Number of pieces, including characters.
    pub(super) pieces: usize,
    /// Strings that occur fewer times than this are not pieces.
    pub(super) min_frequency: u64,
}

/// Returns pieces with the logarithms of their probabilities, the most probable first.
pub(super) fn learn(words: &Words, wanted: &Wanted, mut progress: impl FnMut(usize)) -> Vec<Piece> {
    let mut pieces = seeds(words, wanted);
    // The last pruning leaves a tenth too many; the least probable of them are dropped at the end.
    let nearly = wanted.pieces + wanted.pieces / 10;
    loop {
        for _ in 0..SUB_ITERATIONS {
            pieces = maximised(&pieces, &expectations(words, &Trie::new(&pieces)), wanted.characters.len());
        }
        progress(wanted.pieces * nearly / pieces.len().max(nearly));
        if pieces.len() <= nearly {
            break;
        }
        let size = nearly.max((pieces.len() as f64 * SHRINKING) as usize);
        pieces = pruned(words, &pieces, size, wanted.characters.len());
    }
    let mut longer = pieces.split_off(wanted.characters.len());
    longer.sort_by(by_score);
    pieces.extend(longer.into_iter().take(wanted.pieces.saturating_sub(wanted.characters.len())));
    pieces.sort_by(by_score);
    pieces
}

fn by_score(a: &Piece, b: &Piece) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0))
}

/// The characters, and the strings with the largest product of count and length.
fn seeds(words: &Words, wanted: &Wanted) -> Vec<Piece> {
    let mut frequent: Vec<&(Box<str>, u64)> = words.iter().collect();
    frequent.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut bytes = 0;
    frequent.retain(|(word, _)| {
        bytes += word.len();
        bytes <= SEED_BYTES_MAX
    });
    let strings = frequent_strings(&frequent, wanted.min_frequency.max(2));
    let mut longer: Vec<Piece> = strings
        .iter()
        .filter(|(text, _)| {
            text.chars().nth(1).is_some() && !wanted.reserved.iter().any(|name| name == *text)
        })
        .map(|(text, count)| ((*text).to_string(), *count as f64 * text.chars().count() as f64))
        .collect();
    longer.sort_by(by_score);
    longer.truncate(SEEDS_PER_PIECE * wanted.pieces.saturating_sub(wanted.characters.len()));
    let mut buffer = [0; 4];
    let single = |c: &char| {
        (c.to_string(), strings.get(&*c.encode_utf8(&mut buffer)).map_or(0.5, |count| *count as f64))
    };
    let mut pieces: Vec<Piece> = wanted.characters.iter().map(single).collect();
    pieces.extend(longer);
    let sum: f64 = pieces.iter().map(|(_, score)| score).sum();
    for (_, score) in &mut pieces {
        *score = (*score / sum).ln();
    }
    pieces
}

/// Counts of all strings within words that occur at least `least` times, up to the longest piece.
///
/// A string is no more frequent than its substrings (Agrawal & Srikant, VLDB 1994): strings of each length
/// are counted only if both substrings that are one character shorter are frequent, which keeps the table
/// small.
fn frequent_strings<'a>(words: &[&'a (Box<str>, u64)], least: u64) -> FastMap<&'a str, u64> {
    let mut all: FastMap<&str, u64> = FastMap::default();
    let mut ends = Vec::new();
    for length in 1..=PIECE_CHARACTERS_MAX {
        let mut counts: FastMap<&str, u64> = FastMap::default();
        for (word, count) in words {
            ends.clear();
            ends.extend(word.char_indices().map(|(at, _)| at));
            ends.push(word.len());
            for bounds in ends.windows(length + 1) {
                let first = bounds[0];
                let last = bounds[length];
                let is_open = length == 1
                    || (all.contains_key(&word[first..bounds[length - 1]])
                        && all.contains_key(&word[bounds[1]..last]));
                if is_open {
                    *counts.entry(&word[first..last]).or_default() += count;
                }
            }
        }
        counts.retain(|_, count| *count >= least);
        if counts.is_empty() {
            break;
        }
        all.extend(counts);
    }
    all
}

/// Expected number of each piece in all words.
fn expectations(words: &Words, trie: &Trie) -> Vec<f64> {
    sum_of_parts(words, trie, |lattice, word, count, sums| {
        lattice.expect(word, count, trie, sums);
    })
}

/// Number of each piece in the best spellings of all words.
fn occurrences(words: &Words, trie: &Trie) -> Vec<f64> {
    sum_of_parts(words, trie, |lattice, word, count, sums| {
        let known = lattice.best(word, trie, NO_PIECE).filter(|piece| *piece != NO_PIECE);
        known.for_each(|piece| sums[piece as usize] += count);
    })
}

fn sum_of_parts(
    words: &Words,
    trie: &Trie,
    add: impl Fn(&mut Lattice, &str, f64, &mut [f64]) + Sync,
) -> Vec<f64> {
    let parts = words.par_chunks(words.len().div_ceil(PARTS).max(1)).map(|words: &Words| {
        let mut lattice = Lattice::default();
        let mut sums = vec![0.0; trie.len()];
        for (word, count) in words {
            add(&mut lattice, word, *count as f64, &mut sums);
        }
        sums
    });
    let parts: Vec<Vec<f64>> = parts.collect();
    let mut total = vec![0.0; trie.len()];
    for part in parts {
        total.iter_mut().zip(part).for_each(|(sum, more)| *sum += more);
    }
    total
}

/// New scores from expected counts, with a sparse prior (Liang & Klein, ACL 2007 tutorial; SentencePiece does
/// the same). Pieces with an expected count below 0.5 are dropped, except the first `characters`.
fn maximised(pieces: &[Piece], expected: &[f64], characters: usize) -> Vec<Piece> {
    let kept: Vec<(&String, f64)> = pieces
        .iter()
        .zip(expected)
        .enumerate()
        .filter(|(place, (_, count))| *place < characters || **count >= 0.5)
        .map(|(_, ((text, _), count))| (text, count.max(0.5)))
        .collect();
    let sum = digamma(kept.iter().map(|(_, count)| count).sum());
    kept.into_iter().map(|(text, count)| (text.clone(), digamma(count) - sum)).collect()
}

/// The `size` pieces whose removal would lower the likelihood most, and in any case the first `characters`.
fn pruned(words: &Words, pieces: &[Piece], size: usize, characters: usize) -> Vec<Piece> {
    let trie = Trie::new(pieces);
    let counts = occurrences(words, &trie);
    let sum: f64 = counts.iter().sum();
    let loss = |piece: u32| {
        let count = counts[piece as usize];
        if count == 0.0 {
            return 0.0;
        }
        // The alternative spelling of the piece gets the counts of the piece.
        let mut alternative = 0.0;
        let mut length = 0.0;
        for other in Lattice::default().best(&pieces[piece as usize].0, &trie, piece) {
            alternative += (counts.get(other as usize).copied().unwrap_or_default() + count).ln();
            length += 1.0;
        }
        let alternative = alternative - length * (sum + count * (length - 1.0)).ln();
        count / sum * (count.ln() - sum.ln() - alternative)
    };
    let mut longer: Vec<(u32, f64)> =
        (characters as u32..pieces.len() as u32).into_par_iter().map(|piece| (piece, loss(piece))).collect();
    longer.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    longer.truncate(size.saturating_sub(characters));
    longer.sort_unstable_by_key(|(piece, _)| *piece);
    let chosen = longer.into_iter().map(|(piece, _)| pieces[piece as usize].clone());
    pieces[..characters].iter().cloned().chain(chosen).collect()
}

/// The derivative of the logarithm of the gamma function: recurrence up to 7, then its asymptotic series
/// (Abramowitz & Stegun 6.3.5, 6.3.18).
fn digamma(mut x: f64) -> f64 {
    let mut result = 0.0;
    while x < 7.0 {
        result -= 1.0 / x;
        x += 1.0;
    }
    let square = (x * x).recip();
    result + x.ln() - 0.5 / x - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[(&str, u64)]) -> Vec<(Box<str>, u64)> {
        list.iter().map(|(word, count)| (Box::from(*word), *count)).collect()
    }

    #[test]
    fn digamma_has_its_known_values() {
        assert!((digamma(1.0) + 0.577_215_664_901_532_9).abs() < 1e-9);
        assert!((digamma(10.0) - 2.251_752_589_066_721).abs() < 1e-9);
    }

    #[test]
    fn frequent_strings_are_counted_exactly() {
        let list = words(&[("abab", 2), ("bab", 3), ("x", 9), ("ä", 1)]);
        let strings = frequent_strings(&list.iter().collect::<Vec<_>>(), 2);
        let mut found: Vec<(&str, u64)> = strings.into_iter().collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [("a", 7), ("ab", 7), ("aba", 2), ("abab", 2), ("b", 10), ("ba", 5), ("bab", 5), ("x", 9)]
        );
    }

    #[test]
    fn stems_and_endings_become_pieces_for_any_number_of_threads() {
        let mut list = Vec::new();
        for stem in ["talo", "auto", "kirja", "metsä"] {
            for ending in ["", "ssa", "sta", "lla", "n"] {
                list.push((Box::from(format!("▁{stem}{ending}")), 10u64));
            }
        }
        list.sort();
        let characters: Vec<char> = "▁aeijklmnorstuä".chars().collect();
        let wanted = Wanted {
            characters: &characters,
            reserved: &["▁auto".to_string()],
            pieces: 23,
            min_frequency: 2,
        };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| learn(&list, &wanted, |_| {}))
        };
        let pieces = run(1);
        let texts: Vec<&str> = pieces.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts.len(), 23);
        assert!(["▁talo", "▁kirja", "▁metsä", "ssa"].iter().all(|stem| texts.contains(stem)), "{texts:?}");
        assert!(
            characters.iter().all(|c| texts.contains(&c.to_string().as_str())) && !texts.contains(&"▁auto"),
            "{texts:?}"
        );
        let [one, three] = [pieces, run(3)].map(|pieces| {
            pieces.into_iter().map(|(text, score)| (text, score.to_bits())).collect::<Vec<_>>()
        });
        assert_eq!(three, one);
    }
}
