//! Counts short texts in bounded memory: lossy counting (Manku & Motwani, VLDB 2002) with a bound on the
//! entries.
//!
//! The counts are a function of the texts of each call and the order of the calls, never of the threads nor of the
//! process that saw the texts.

use rayon::prelude::*;

use crate::tokenizer::hash::FastMap;

/// How often a text was seen, and how often it may have been seen before it was forgotten.
struct Entry {
    count: u64,
    missed: u64,
}

/// How often each piece was seen in some texts; a piece may stand there several times. To be added to [`Counts`], here
/// or in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceCounts(pub(super) Vec<(Box<str>, u64)>);

impl PieceCounts {
    /// Counts what `cut` makes of each of `texts`, in parallel.
    pub(super) fn of<T: AsRef<str> + Sync>(
        texts: &[T],
        cut: impl Fn(&str, &mut dyn FnMut(&str)) + Sync,
    ) -> Self {
        let portion = texts.len().div_ceil(4 * rayon::current_num_threads()).max(1);
        let count = |texts: &[T]| {
            let mut counts: FastMap<Box<str>, u64> = FastMap::default();
            for text in texts {
                cut(text.as_ref(), &mut |piece| match counts.get_mut(piece) {
                    Some(count) => *count += 1,
                    None => drop(counts.insert(piece.into(), 1)),
                });
            }
            counts
        };
        let parts: Vec<FastMap<Box<str>, u64>> = texts.par_chunks(portion).map(count).collect();
        Self(parts.into_iter().flatten().collect())
    }

    /// What falls to one of so many processes, which are numbered from 0.
    #[must_use]
    pub fn share(&self, rank: usize, size: usize) -> Self {
        let [from, to] = [rank, rank + 1].map(|rank| self.0.len() * rank / size);
        Self(self.0[from..to].to_vec())
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// For another process: of each piece its count and its length in little-endian bytes, and itself.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (piece, count) in &self.0 {
            bytes.extend(count.to_le_bytes());
            bytes.extend((piece.len() as u32).to_le_bytes());
            bytes.extend(piece.as_bytes());
        }
        bytes
    }

    /// None where the bytes are not of [`Self::to_bytes`].
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut counts = Vec::new();
        while !bytes.is_empty() {
            let (count, behind) = bytes.split_first_chunk()?;
            let (len, behind) = behind.split_first_chunk()?;
            let (piece, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            counts.push((std::str::from_utf8(piece).ok()?.into(), u64::from_le_bytes(*count)));
            bytes = behind;
        }
        Some(Self(counts))
    }
}

/// Counts of texts.
pub(super) struct Counts {
    entries: FastMap<Box<str>, Entry>,
    entries_max: usize,
    /// No text that was seen more often than this is forgotten.
    missed_max: u64,
    forgotten: u64,
}

/// What was counted.
pub(super) struct Counted {
    /// Texts and their counts, each text once, sorted. A count is too small by `missed_max` at most.
    pub(super) counts: PieceCounts,
    /// How often an entry was forgotten.
    pub(super) forgotten: u64,
    /// The largest possible error of a count.
    pub(super) missed_max: u64,
}

impl Counts {
    /// Counts that keep at most `entries_max` entries between two calls of [`add`](Self::add).
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: FastMap::default(), entries_max, missed_max: 0, forgotten: 0 }
    }

    /// Adds what was counted in some texts.
    pub(super) fn add(&mut self, counts: PieceCounts) {
        for (piece, count) in counts.0 {
            self.entries.entry(piece).or_insert(Entry { count: 0, missed: self.missed_max }).count += count;
        }
        self.forget();
    }

    /// Forgets the rarest until there is room for a quarter more.
    fn forget(&mut self) {
        if self.entries.len() <= self.entries_max {
            return;
        }
        let before = self.entries.len();
        while self.entries.len() > self.entries_max / 4 * 3 {
            // The smallest bound that takes something away: steps of one would be many where all is frequent.
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
                counts.add(PieceCounts::of(portion, |text, piece| text.split(' ').for_each(piece)));
            }
            counts.finish()
        })
    }

    /// Word number n comes about 2000 / n times.
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
        let counts = PieceCounts::of(&texts(), |text, piece| text.split(' ').for_each(piece));
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
