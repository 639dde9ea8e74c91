//! Pool of slots, pairs of a host buffer and a GPU buffer that are reused for one packet after the other.
//!
//! The pool does no copies and records no events: the drivers do.

use std::collections::VecDeque;

/// Most free slots that are kept: for two batches alive at once, and two that the GPU is still processing.
const MOST_FREE: usize = 4;

/// Smallest size of a slot: batches of a few thousand tokens fit, so slots rarely have to grow.
const LEAST_BYTES: usize = 1 << 20;

/// Size of a new slot for a packet of `packet_bytes` bytes: a power of two, so that soon every slot fits
/// packets of all sizes.
pub(super) fn slot_bytes(packet_bytes: usize) -> usize {
    packet_bytes.next_power_of_two().max(LEAST_BYTES)
}

/// Interface that the slots of all drivers share.
pub(super) trait Room {
    /// Size in bytes of each of the slot's two buffers.
    fn bytes(&self) -> usize;
}

/// Slots without a packet, in the order in which they became free.
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
    /// Takes the slot that has been free for longest; `None` if a new one has to be made. The slot that
    /// became free last always stays in the pool: the GPU may still be reading from it, and a copy into it
    /// would wait for that instead of running concurrently.
    pub(super) fn take(&mut self) -> Option<S> {
        if self.free.len() < 2 { None } else { self.free.pop_front() }
    }

    /// Puts a slot back. If there are now too many, removes the smallest one and returns it.
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

    /// Slot of a test: its name and its size.
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
    fn the_smallest_of_too_many_free_slots_is_dropped() {
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
