//! Counts short texts in bounded memory: lossy counting (Manku & Motwani, VLDB 2002) with a bound on the
//! number of entries.
//!
//! The counts are a function of the texts of each call and the order of the calls, independent of threads and
//! of the process that counted the texts.

use rayon::prelude::*;

use crate::tokenizer::hash::FastMap;

/// The count of a text, and an upper bound on its occurrences before the entry was created.
struct Entry {
    count: u64,
    missed: u64,
}

/// The counts of pieces in some texts; a piece may be listed several times. They are added to [`Counts`], in
/// this process or in another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceCounts(pub(super) Vec<(Box<str>, u64)>);

impl PieceCounts {
    /// Counts the pieces into which `cut` divides each of `texts`, in parallel.
    pub(super) fn count<T: AsRef<str> + Sync>(
        texts: &[T],
        cut: impl Fn(&str, &mut dyn FnMut(&str)) + Sync,
    ) -> Self {
        let portion = texts.len().div_ceil(4 * rayon::current_num_threads()).max(1);
        let parts = texts.par_chunks(portion).map(|texts| {
            let mut counts: FastMap<Box<str>, u64> = FastMap::default();
            for text in texts {
                cut(text.as_ref(), &mut |piece| match counts.get_mut(piece) {
                    Some(count) => *count += 1,
                    None => drop(counts.insert(piece.into(), 1)),
                });
            }
            counts
        });
        let parts: Vec<FastMap<Box<str>, u64>> = parts.collect();
        Self(parts.into_iter().flatten().collect())
    }

    /// The share of process `rank` of `size`.
    #[must_use]
    pub fn share(&self, rank: usize, size: usize) -> Self {
        let [from, to] = [rank, rank + 1].map(|rank| self.0.len() * rank / size);
        Self(self.0[from..to].to_vec())
    }

    /// The counts of both lists.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// Serializes the counts for another process: for each piece its count and its length as little-endian
    /// bytes, and its text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (piece, count) in &self.0 {
            bytes.extend(count.to_le_bytes());
            bytes.extend((piece.len() as u32).to_le_bytes());
            bytes.extend(piece.as_bytes());
        }
        bytes
    }

    /// Reads the result of [`Self::to_bytes`]; `None` for other bytes.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut counts = Vec::new();
        while !bytes.is_empty() {
            let (count, rest) = bytes.split_first_chunk()?;
            let (len, rest) = rest.split_first_chunk()?;
            let (piece, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            counts.push((std::str::from_utf8(piece).ok()?.into(), u64::from_le_bytes(*count)));
            bytes = rest;
        }
        Some(Self(counts))
    }
}

/// Bounded counts of texts.
pub(super) struct Counts {
    entries: FastMap<Box<str>, Entry>,
    entries_max: usize,
    /// Upper bound on the count of a text that was dropped.
    missed_max: u64,
    forgotten: u64,
}

/// The result of counting.
pub(super) struct Counted {
    /// Texts and their counts, each text once, sorted. A count is too small by at most `missed_max`.
    pub(super) counts: PieceCounts,
    /// Number of entries that were dropped.
    pub(super) forgotten: u64,
    /// Largest possible error of a count.
    pub(super) missed_max: u64,
}

impl Counts {
    /// Empty counts that keep at most `entries_max` entries between two calls of [`add`](Self::add).
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: FastMap::default(), entries_max, missed_max: 0, forgotten: 0 }
    }

    /// Adds the counts of some texts.
    pub(super) fn add(&mut self, counts: PieceCounts) {
        for (piece, count) in counts.0 {
            self.entries.entry(piece).or_insert(Entry { count: 0, missed: self.missed_max }).count += count;
        }
        self.forget();
    }

    /// Drops the rarest entries until a quarter of the space is free, if there are too many.
    fn forget(&mut self) {
        if self.entries.len() <= self.entries_max {
            return;
        }
        let before = self.entries.len();
        while self.entries.len() > self.entries_max / 4 * 3 {
            // The smallest bound that drops an entry: steps of one would be too many if all texts are
            // frequent.
            let rarest =
                self.entries.values().map(|entry| entry.count + entry.missed).min().unwrap_or_default();
            self.missed_max = rarest.max(self.missed_max);
            self.entries.retain(|_, entry| entry.count + entry.missed > rarest);
        }
        self.forgotten += (before - self.entries.len()) as u64;
    }

    /// The counts, sorted by text.
    pub(super) fn finish(self) -> Counted {
        let mut counts: Vec<(Box<str>, u64)> =
            self.entries.into_iter().map(|(text, entry)| (text, entry.count)).collect();
        counts.sort_unstable();
        Counted { counts: PieceCounts(counts), forgotten: self.forgotten, missed_max: self.missed_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(texts: &[String], entries_max: usize, threads: usize) -> Counted {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut counts = Counts::new(entries_max);
            for portion in texts.chunks(10) {
                counts.add(PieceCounts::count(portion, |text, piece| text.split(' ').for_each(piece)));
            }
            counts.finish()
        })
    }

    /// Word number n occurs about 2000 / n times.
    fn texts() -> Vec<String> {
        let mut words = Vec::new();
        for round in 1..=2000usize {
            words.extend((1..=round.min(400)).filter(|n| round % n == 0).map(|n| format!("w{n}")));
            words.push(format!("once{round}"));
        }
        words.chunks(20).map(|some| some.join(" ")).collect()
    }

    #[test]
    fn with_room_the_counts_are_exact() {
        let counted = count(&texts(), 10_000, 2);
        assert_eq!((counted.forgotten, counted.missed_max, counted.counts.0.len()), (0, 0, 2400));
        assert_eq!(counted.counts.0.iter().find(|(text, _)| &**text == "w7").unwrap().1, 285);
    }

    #[test]
    fn counts_come_back_from_bytes_and_what_is_cut_is_refused() {
        let counts = PieceCounts::count(&texts(), |text, piece| text.split(' ').for_each(piece));
        let bytes = counts.to_bytes();
        let shares = (0..3).map(|rank| counts.share(rank, 3)).reduce(PieceCounts::and);
        assert_eq!(shares.as_ref(), Some(&counts));
        assert_eq!(PieceCounts::from_bytes(&bytes), Some(counts));
        assert_eq!(PieceCounts::from_bytes(&[]), Some(PieceCounts(Vec::new())));
        for cut in [1, 5, 13] {
            assert_eq!(PieceCounts::from_bytes(&bytes[..bytes.len() - cut]), None);
        }
    }

    #[test]
    fn without_room_the_frequent_stay_within_the_bound_for_any_number_of_threads() {
        let exact = count(&texts(), 10_000, 1).counts.0;
        let counted = count(&texts(), 400, 1);
        assert!(counted.forgotten > 1000 && counted.counts.0.len() <= 400, "{} forgotten", counted.forgotten);
        for (text, count) in &exact {
            let kept = counted.counts.0.iter().find(|(t, _)| t == text).map_or(0, |(_, c)| *c);
            assert!(kept <= *count && count - kept <= counted.missed_max, "{text}: {kept} of {count}");
        }
        for threads in [2, 7] {
            let again = count(&texts(), 400, threads);
            assert_eq!(
                (again.counts, again.forgotten, again.missed_max),
                (counted.counts.clone(), counted.forgotten, counted.missed_max)
            );
        }
    }
}
