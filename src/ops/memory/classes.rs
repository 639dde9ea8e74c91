//! The sizes that large blocks come in: eight to each power of two, so that at most an eighth of a block
//! stays unused.

/// Requests of fewer bytes are small: the system's allocator is good at them.
pub(super) const LARGE_BYTES: usize = 1 << SMALLEST_BIT;

const SMALLEST_BIT: u32 = 16;

/// Classes to a power of two: `2^STEP_BITS`.
const STEP_BITS: u32 = 3;

/// Beyond the address space of every machine.
const LARGEST_BIT: u32 = 47;

/// How many classes there are.
pub(super) const COUNT: usize = ((LARGEST_BIT - SMALLEST_BIT) << STEP_BITS) as usize;

/// The smallest class that holds `bytes`; `None` for a small request, and for one beyond the largest class.
pub(super) fn of(bytes: usize) -> Option<usize> {
    if bytes < LARGE_BYTES {
        return None;
    }
    // With `last` the last byte's offset, a class is the range of sizes whose `last` has the same leading
    // bits.
    let last = (bytes - 1).max(LARGE_BYTES - 1);
    if last < LARGE_BYTES {
        return Some(0);
    }
    let bit = last.ilog2();
    let step = (last >> (bit - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    let class = (((bit - SMALLEST_BIT) << STEP_BITS) as usize) + step + 1;
    (class < COUNT).then_some(class)
}

/// Bytes of the blocks of a class.
pub(super) fn bytes(class: usize) -> usize {
    let (power, step) = (class >> STEP_BITS, class & ((1 << STEP_BITS) - 1));
    ((1 << STEP_BITS) + step) << (power + (SMALLEST_BIT - STEP_BITS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_and_hold_what_they_are_for() {
        assert_eq!(
            (of(0), of(LARGE_BYTES - 1), of(LARGE_BYTES), of(LARGE_BYTES + 1)),
            (None, None, Some(0), Some(1))
        );
        assert_eq!((bytes(0), bytes(1), bytes(8), bytes(9)), (64 << 10, 72 << 10, 128 << 10, 144 << 10));
        assert_eq!((of(usize::MAX), of(1 << 60)), (None, None));
        for class in 0..COUNT {
            assert_eq!(of(bytes(class)), Some(class));
            assert_eq!(of(bytes(class) + 1), (class + 1 < COUNT).then_some(class + 1));
        }
    }

    #[test]
    fn an_eighth_at_most_stays_unused() {
        let mut size = LARGE_BYTES;
        while size < 1 << 40 {
            let block = bytes(of(size).unwrap());
            assert!(block >= size && block - size <= size / 8, "{size} in {block}");
            size += size / 97 + 1;
        }
    }
}
