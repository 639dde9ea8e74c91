//! Which slot a packet takes: pairs of a host buffer and a buffer of the GPU, used again and again.
//!
//! It knows nothing of copies and events: those are the drivers'.

use std::collections::VecDeque;

/// Free slots that are kept: two batches alive at once, and as many that the GPU still works on.
const MOST_FREE: usize = 4;

/// The least size of a slot: batches of a few thousand tokens fit, so that slots hardly ever have to grow.
const LEAST_BYTES: usize = 1 << 20;

/// How large a slot is made for a packet of so many bytes: a power of two, so that packets of all sizes soon
/// fit into all slots.
pub(super) fn slot_bytes(packet_bytes: usize) -> usize {
    packet_bytes.next_power_of_two().max(LEAST_BYTES)
}

/// What the slots of all drivers have.
pub(super) trait Room {
    /// Bytes of each of its buffers.
    fn bytes(&self) -> usize;
}

/// The slots that no packet is in, that which was given back first in front.
#[derive(Debug)]
pub(super) struct Slots<S> {
    free: VecDeque<S>,
}

impl<S> Default for Slots<S> {
    fn default() -> Self {
        Self { free: VecDeque::new() }
    }
}

impl<S: Room> Slots<S> {
    /// The slot that has been free for longest; `None` where a new one is to be made. One slot always stays
    /// behind: the GPU may still be reading what was given back last, and a copy to it would wait for that
    /// instead of running beside it.
    pub(super) fn take(&mut self) -> Option<S> {
        if self.free.len() < 2 { None } else { self.free.pop_front() }
    }

    /// Takes a slot back. Of too many, the smallest is no longer needed and comes back.
    pub(super) fn give_back(&mut self, slot: S) -> Option<S> {
        self.free.push_back(slot);
        if self.free.len() <= MOST_FREE {
            return None;
        }
        let smallest = (0..self.free.len()).min_by_key(|&index| self.free[index].bytes())?;
        self.free.remove(smallest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its name and its size.
    #[derive(Debug, PartialEq, Eq)]
    struct Slot(char, usize);

    impl Room for Slot {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn two_slots_take_turns() {
        let mut slots = Slots::default();
        assert_eq!(slots.take(), None);
        slots.give_back(Slot('a', 1));
        assert_eq!(slots.take(), None, "what was read last stays behind");
        slots.give_back(Slot('b', 1));
        let mut names = String::new();
        for _ in 0..5 {
            let slot = slots.take().unwrap();
            names.push(slot.0);
            assert_eq!(slots.give_back(slot), None);
        }
        assert_eq!(names, "ababa");
    }

    #[test]
    fn of_too_many_free_slots_the_smallest_goes() {
        let mut slots = Slots::default();
        for (name, bytes) in [('a', 4), ('b', 2), ('c', 8), ('d', 8)] {
            assert_eq!(slots.give_back(Slot(name, bytes)), None);
        }
        assert_eq!(slots.give_back(Slot('e', 4)), Some(Slot('b', 2)));
        assert_eq!(slots.give_back(Slot('f', 1)), Some(Slot('f', 1)));
        assert_eq!(slots.take(), Some(Slot('a', 4)));
    }

    #[test]
    fn slots_are_powers_of_two_from_a_mebibyte_on() {
        assert_eq!(
            [0, 1 << 20, (1 << 20) + 1, 5 << 20].map(slot_bytes),
            [1 << 20, 1 << 20, 2 << 20, 8 << 20]
        );
    }
}
