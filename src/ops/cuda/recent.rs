//! A map of bounded size that drops the entries that were used least recently.

use std::collections::HashMap;
use std::hash::Hash;

/// Map of at most `2 * N` entries. Entries are in two generations: a used entry moves to the young one, and
/// when that has `N` entries, it becomes the old one, and what is left of the old one is dropped. So the last
/// `N` different entries that were used are always there, and no use has to search for the oldest entry.
#[derive(Debug)]
pub(super) struct Recent<K, V, const N: usize> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Copy + Eq + Hash, V, const N: usize> Recent<K, V, N> {
    pub(super) fn new() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }

    /// Returns the value of an entry, which counts as a use.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if !self.young.contains_key(key) {
            let value = self.old.remove(key)?;
            self.insert(*key, value);
        }
        self.young.get_mut(key)
    }

    /// Inserts or replaces an entry.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= N && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Value of a recent map. The count of `_alive` is that of the values that are not dropped.
    struct Counted {
        _alive: Rc<()>,
        number: usize,
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_used_ones_stay() {
        const N: usize = 8;
        let alive = Rc::new(());
        let mut recent = Recent::<usize, Counted, N>::new();
        for key in 0..1000 {
            assert!(recent.get_mut(&key).is_none());
            recent.insert(key, Counted { _alive: alive.clone(), number: key });
            // Entry 0 is used all the time, and the last N different ones are there.
            for used in [0].into_iter().chain(key.saturating_sub(N - 2)..=key) {
                assert_eq!(recent.get_mut(&used).map(|value| value.number), Some(used), "after {key}");
            }
            assert!(Rc::strong_count(&alive) <= 1 + 2 * N);
        }
        assert!(recent.get_mut(&500).is_none());
        recent.insert(999, Counted { _alive: alive.clone(), number: 7 });
        assert_eq!(recent.get_mut(&999).map(|value| value.number), Some(7), "it is replaced");
        recent.clear();
        assert!(recent.get_mut(&999).is_none());
        assert_eq!(Rc::strong_count(&alive), 1);
    }
}
