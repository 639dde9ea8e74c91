//! The size classes of large blocks: eight for each power of two, so that at most an eighth of a block stays
//! unused.

/// Smallest request that gets a size class. Smaller requests go to the system's allocator, which handles them
/// well.
pub(super) const LARGE_BYTES: usize = 1 << SMALLEST_BIT;

const SMALLEST_BIT: u32 = 16;

/// There are `2^STEP_BITS` classes for each power of two.
const STEP_BITS: u32 = 3;

/// Classes end below `2^LARGEST_BIT` bytes, which is beyond the address space of every machine.
const LARGEST_BIT: u32 = 47;

/// Number of classes.
pub(super) const COUNT: usize = ((LARGEST_BIT - SMALLEST_BIT) << STEP_BITS) as usize;

/// Returns the smallest class whose blocks have at least `bytes`; `None` for a small request, and for one
/// that is larger than the largest class.
pub(super) fn class_for(bytes: usize) -> Option<usize> {
    if bytes < LARGE_BYTES {
        return None;
    }
    // `last` is the offset of the last byte. A class consists of the sizes whose `last` has the same leading
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

/// Size in bytes of the blocks of a class.
pub(super) fn bytes(class: usize) -> usize {
    let power = class >> STEP_BITS;
    let step = class & ((1 << STEP_BITS) - 1);
    ((1 << STEP_BITS) + step) << (power + (SMALLEST_BIT - STEP_BITS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_and_have_room_for_their_requests() {
        let sizes = [0, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1];
        assert_eq!(sizes.map(class_for), [None, None, Some(0), Some(1)]);
        assert_eq!((bytes(0), bytes(1), bytes(8), bytes(9)), (64 << 10, 72 << 10, 128 << 10, 144 << 10));
        assert_eq!((class_for(usize::MAX), class_for(1 << 60)), (None, None));
        for class in 0..COUNT {
            assert_eq!(class_for(bytes(class)), Some(class));
            assert_eq!(class_for(bytes(class) + 1), (class + 1 < COUNT).then_some(class + 1));
        }
    }

    #[test]
    fn an_eighth_at_most_stays_unused() {
        let mut size = LARGE_BYTES;
        while size < 1 << 40 {
            let block = bytes(class_for(size).unwrap());
            assert!(block >= size && block - size <= size / 8, "{size} in {block}");
            size += size / 97 + 1;
        }
    }
}
