//! A bounded cache of the ids of short pieces of text. Evicted ids are computed again, so results never
//! depend on the cache.

use xxhash_rust::xxh3::xxh3_64;

/// The longest text that is cached, in bytes.
const TEXT_BYTES: usize = 30;

/// Most ids that are cached for one text.
const IDS: usize = 8;

/// Pairs of slots in a new cache.
const FIRST_PAIRS: usize = 64;

/// Text and ids of one entry, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    text_len: u8,
    ids_len: u8,
    text: [u8; TEXT_BYTES],
    ids: [u32; IDS],
}

const EMPTY: Slot = Slot { text_len: 0, ids_len: 0, text: [0; TEXT_BYTES], ids: [0; IDS] };

impl Slot {
    fn holds(&self, text: &[u8]) -> bool {
        usize::from(self.text_len) == text.len() && self.text[..text.len()] == *text
    }
}

/// A hash table of pairs of slots: a new entry replaces the second slot of its pair, and an entry found in
/// the second slot is moved to the first. So frequent texts stay.
pub(super) struct Cache {
    slots: Vec<[Slot; 2]>,
    pairs_max: usize,
    /// Number of slots in use.
    filled: usize,
}

impl Cache {
    /// A cache that grows to at most `bytes` of memory, and at least one pair.
    pub(super) fn new(bytes: usize) -> Self {
        let pairs = (bytes / size_of::<[Slot; 2]>()).max(1);
        // The largest power of two up to this number.
        let pairs_max = 1 << pairs.ilog2();
        Self { slots: vec![[EMPTY; 2]; pairs_max.min(FIRST_PAIRS)], pairs_max, filled: 0 }
    }

    /// The pair of slots for `text`.
    fn place(&self, text: &[u8]) -> usize {
        xxh3_64(text) as usize & (self.slots.len() - 1)
    }

    /// Appends the ids of `text`; calls `compute` to append them if they are not cached.
    pub(super) fn append<E>(
        &mut self,
        text: &str,
        ids: &mut Vec<u32>,
        compute: impl FnOnce(&mut Self, &mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let text = text.as_bytes();
        if text.is_empty() || text.len() > TEXT_BYTES {
            return compute(self, ids);
        }
        let place = self.place(text);
        let pair = &mut self.slots[place];
        if pair[1].holds(text) {
            pair.swap(0, 1);
        }
        if pair[0].holds(text) {
            ids.extend_from_slice(&pair[0].ids[..usize::from(pair[0].ids_len)]);
            return Ok(());
        }
        let before = ids.len();
        compute(self, ids)?;
        self.remember(text, &ids[before..]);
        Ok(())
    }

    fn remember(&mut self, text: &[u8], ids: &[u32]) {
        if ids.len() > IDS {
            return;
        }
        let place = self.place(text);
        let slot = &mut self.slots[place][1];
        self.filled += usize::from(slot.text_len == 0);
        slot.text[..text.len()].copy_from_slice(text);
        slot.ids[..ids.len()].copy_from_slice(ids);
        slot.text_len = text.len() as u8;
        slot.ids_len = ids.len() as u8;
        if self.filled > self.slots.len() && self.slots.len() < self.pairs_max {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let pairs = (self.slots.len() * 4).min(self.pairs_max);
        let old = std::mem::replace(&mut self.slots, vec![[EMPTY; 2]; pairs]);
        self.filled = 0;
        for slot in old.iter().flatten().filter(|slot| slot.text_len > 0) {
            let place = self.place(&slot.text[..usize::from(slot.text_len)]);
            let free = usize::from(self.slots[place][0].text_len > 0);
            self.slots[place][free] = *slot;
            self.filled += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_slot_is_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn ids_are_right_whatever_was_evicted() {
        for bytes in [0, 128, 1 << 12, 1 << 20] {
            let mut cache = Cache::new(bytes);
            let mut computed = 0;
            for round in 0..3 {
                for number in 0..500u32 {
                    let text = format!("text {number}{}", "x".repeat(number as usize % 40));
                    let expected: Vec<u32> = (0..number % 11).map(|i| number + i).collect();
                    let mut ids = vec![7];
                    let known: Result<(), Infallible> = cache.append(&text, &mut ids, |_, ids| {
                        computed += 1;
                        ids.extend(&expected);
                        Ok(())
                    });
                    known.unwrap();
                    assert_eq!(ids[1..], expected, "{bytes} bytes, round {round}");
                }
            }
            assert!(computed < 1500 || bytes < 1 << 20, "{computed} of 1500 with {bytes} bytes");
        }
    }
}
