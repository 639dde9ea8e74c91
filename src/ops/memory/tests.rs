//! Reuse, zeroing, resizing and threads, on pools created by the tests; the allocator of the test program
//! itself is not involved.

use std::alloc::Layout;

use super::pool::Pool;
use super::{classes, pages};
use base::rng::{Purpose, Stream};

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4).unwrap()
}

/// A block whose bytes all have the value `fill`; it is freed in its pool on drop.
struct Block<'a> {
    pool: &'a Pool,
    data: *mut u8,
    len: usize,
    fill: u8,
}

impl<'a> Block<'a> {
    fn new(pool: &'a Pool, len: usize, fill: u8) -> Self {
        // SAFETY: the size is not zero, and the block has room for `len` bytes.
        let data = unsafe {
            let data = pool.allocate(layout(len), false);
            assert!(!data.is_null());
            data.write_bytes(fill, len);
            data
        };
        Self { pool, data, len, fill }
    }

    fn zeroed(pool: &'a Pool, len: usize) -> Self {
        // SAFETY: the size is not zero.
        let data = unsafe { pool.allocate(layout(len), true) };
        Self { pool, data, len, fill: 0 }
    }

    fn resize(&mut self, len: usize) {
        // SAFETY: the block is owned by `self` and has this layout; the old bytes are initialised and
        // checked, the new ones are written.
        unsafe {
            self.data = self.pool.resize(self.data, layout(self.len), len);
            let kept = self.len.min(len);
            assert!(
                std::slice::from_raw_parts(self.data, kept).iter().all(|v| *v == self.fill),
                "contents were lost"
            );
            self.data.add(kept).write_bytes(self.fill, len - kept);
        }
        self.len = len;
    }

    fn check(&self) {
        // SAFETY: every byte was written, or was zeroed by the pool.
        let values = unsafe { std::slice::from_raw_parts(self.data, self.len) };
        assert!(
            values.iter().all(|v| *v == self.fill),
            "somebody else wrote into this block of {} bytes",
            self.len
        );
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // SAFETY: the block came from this pool with this layout, and has no other owner.
        unsafe { self.pool.free(self.data, layout(self.len)) };
    }
}

/// Sizes may vary a little from step to step, for example with the number of masked tokens.
#[test]
fn a_block_is_released_when_a_slightly_larger_one_replaces_it() {
    let pool = Pool::new();
    pool.start_keeping();
    for class in [40, 41, 42, 41, 44, 40, 44] {
        drop(Block::new(&pool, classes::bytes(class), 5));
    }
    assert_eq!(pool.usage().system_requests, 5, "40, 41, 42, 44, and 40 again");
    let [small, large] = [40, 44].map(classes::bytes);
    assert_eq!(pool.usage().held_bytes, small + large);
    pool.stop_keeping();
}

#[test]
fn without_keeping_every_block_returns_to_the_system() {
    let pool = Pool::new();
    for round in 1..=3 {
        let block = Block::new(&pool, 1 << 20, 7);
        assert_eq!((pool.usage().held_bytes, pool.usage().used_bytes), (1 << 20, 1 << 20));
        drop(block);
        assert_eq!(
            (pool.usage().held_bytes, pool.usage().used_bytes, pool.usage().system_requests),
            (0, 0, round)
        );
    }
    assert_eq!(pool.usage().peak_held_bytes, 1 << 20);
}

#[test]
fn kept_blocks_are_reused_also_for_slightly_smaller_requests() {
    let pool = Pool::new();
    pool.start_keeping();
    for bytes in [classes::LARGE_BYTES, 1 << 20, pages::MAPPED_BYTES, 40 << 20] {
        let first = Block::new(&pool, bytes, 1);
        let data = first.data as usize;
        let before = pool.usage();
        drop(first);
        assert_eq!(pool.usage().held_bytes, before.held_bytes, "nothing went back");
        let aligned = if bytes < pages::MAPPED_BYTES { 64 } else { 256 };
        assert_eq!(data % aligned, 0, "{bytes}");
        // A request two classes below the block's own class, then one of its own class: serving the smaller
        // request must not make the block smaller.
        for part in [bytes - 1, bytes / 8 * 7, bytes] {
            let again = Block::new(&pool, part.max(classes::LARGE_BYTES), 2);
            assert_eq!(
                (again.data as usize, pool.usage().system_requests),
                (data, before.system_requests),
                "{part} of {bytes}"
            );
            again.check();
        }
        let far = Block::new(&pool, (bytes / 2).max(classes::LARGE_BYTES), 3);
        assert_eq!(
            far.data as usize == data,
            bytes == classes::LARGE_BYTES,
            "half of it is too little for it"
        );
    }
    assert!(pool.usage().held_bytes > 40 << 20 && pool.usage().used_bytes == 0);
    pool.stop_keeping();
    assert_eq!(pool.usage().held_bytes, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn kept_blocks_can_be_released_before_work_with_other_sizes() {
    let pool = Pool::new();
    pool.start_keeping();
    let used = Block::new(&pool, 200_000, 1);
    drop([1 << 20, 1 << 22].map(|bytes| Block::new(&pool, bytes, 2)));
    let kept = pool.usage().held_bytes;
    assert!(kept > pool.usage().used_bytes + (1 << 22));
    pool.give_back_all();
    assert_eq!(pool.usage().held_bytes, pool.usage().used_bytes);
    drop([1 << 21, 1 << 21].map(|bytes| Block::new(&pool, bytes, 2)));
    assert!(pool.usage().peak_held_bytes <= kept, "the peaks do not add up");
    assert!(pool.usage().held_bytes > pool.usage().used_bytes, "and freed blocks are kept again");
    used.check();
    pool.stop_keeping();
}

/// If two blocks began at the same offset, a pass over both would compete for the same sets of the caches.
#[test]
fn the_largest_blocks_begin_at_different_offsets_into_their_huge_pages() {
    let pool = Pool::new();
    pool.start_keeping();
    let blocks = [0; 6].map(|_| Block::new(&pool, pages::MAPPED_BYTES, 1));
    let mut places = blocks.each_ref().map(|block| block.data as usize % (2 << 20));
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] == pages::OFFSET_BYTES), "{places:?}");
    blocks.iter().for_each(Block::check);
    drop(blocks);
    pool.stop_keeping();
    assert_eq!(pool.usage().held_bytes, 0);
}

#[test]
fn zeroed_blocks_are_zero_also_when_reused() {
    let pool = Pool::new();
    for keeps in [false, true] {
        if keeps {
            pool.start_keeping();
        }
        for bytes in [100_000, 3 << 20, 9 << 20] {
            Block::zeroed(&pool, bytes).check();
            drop(Block::new(&pool, bytes, 0xff));
            Block::zeroed(&pool, bytes).check();
        }
    }
    pool.stop_keeping();
}

#[test]
fn a_growing_block_keeps_its_contents_and_moves_only_when_it_must() {
    let pool = Pool::new();
    for keeps in [false, true] {
        if keeps {
            pool.start_keeping();
        }
        let mut block = Block::new(&pool, 10, 5);
        for bytes in [
            1000,
            70_000,
            71_000,
            72 << 10,
            80_000,
            1 << 20,
            (1 << 20) + 1,
            5 << 20,
            9 << 20,
            8 << 20,
            66_000,
            65_535,
            3,
        ] {
            let data = block.data;
            let class = classes::class_for(bytes);
            let same = class.is_some() && class == classes::class_for(block.len);
            block.resize(bytes);
            block.check();
            assert!(!same || block.data == data, "{bytes}: the block was large enough");
        }
        drop(block);
        // A block that serves a smaller request can grow to its full size in place.
        let data = if keeps { Block::new(&pool, 18 << 20, 1).data } else { std::ptr::null_mut() };
        let mut lent = Block::new(&pool, 16 << 20, 2);
        lent.resize(18 << 20);
        assert!(!keeps || lent.data == data);
    }
    assert_eq!(pool.usage().used_bytes, 0);
    pool.stop_keeping();
    assert_eq!(pool.usage().held_bytes, 0);
}

#[test]
fn blocks_may_outlive_a_change_of_keeping() {
    let pool = Pool::new();
    let mut before = Block::new(&pool, 5 << 20, 1);
    let grown = Block::new(&pool, 1 << 20, 2);
    pool.start_keeping();
    let during = Block::new(&pool, 6 << 20, 3);
    before.resize(7 << 20);
    drop(grown);
    assert_eq!(pool.usage().held_bytes, (6 << 20) + (7 << 20), "plain blocks go back even now");
    pool.stop_keeping();
    before.check();
    during.check();
    drop((before, during));
    assert_eq!((pool.usage().held_bytes, pool.usage().used_bytes), (0, 0));
}

#[test]
fn other_alignments_and_impossible_sizes_are_left_to_the_system() {
    let pool = Pool::new();
    pool.start_keeping();
    for align in [1, 32, 64, 128, 4096] {
        let layout = Layout::from_size_align(200_000, align).unwrap();
        // SAFETY: the size is not zero, and the block is freed with the layout of its allocation.
        unsafe {
            let block = pool.allocate(layout, true);
            assert_eq!(block as usize % align, 0);
            pool.free(block, layout);
            assert!(pool.allocate(Layout::from_size_align(1 << 62, align).unwrap(), false).is_null());
        }
    }
    assert_eq!(pool.usage().used_bytes, 0);
    pool.stop_keeping();
}

/// A block that may be sent to another thread.
struct Parcel<'a>(Block<'a>);
// SAFETY: a block has one owner, and its pool is shared by design.
unsafe impl Send for Parcel<'_> {}

/// Threads exchange blocks of random sizes; each block must keep its fill byte until it is freed.
#[test]
fn threads_never_share_a_block() {
    const THREADS: u64 = 4;
    let pool = Pool::new();
    for keeps in [true, false, true] {
        if keeps {
            pool.start_keeping();
        }
        let shelf = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let pool = &pool;
                let shelf = &shelf;
                scope.spawn(move || {
                    let stream = Stream::new(thread, Purpose::Test, u64::from(keeps));
                    for round in 0..150 {
                        // Sizes from 1 KiB to 8 MiB, evenly over the powers of two.
                        let bytes = (1024 << stream.below(2 * round, 13))
                            + stream.below(2 * round + 1, 1024) as usize;
                        let mut block = Block::new(pool, bytes, (7 * round + thread) as u8);
                        if round % 3 == 0 {
                            block.resize((bytes * 3 / 2).max(1));
                        }
                        let other = {
                            let mut shelf = shelf.lock().unwrap();
                            shelf.push(Parcel(block));
                            let at = stream.below(1 << 40 | round, shelf.len() as u64) as usize;
                            (shelf.len() > 12).then(|| shelf.swap_remove(at))
                        };
                        other.inspect(|parcel: &Parcel<'_>| parcel.0.check());
                    }
                });
            }
        });
        let rest = shelf.into_inner().unwrap();
        for parcel in &rest {
            parcel.0.check();
        }
        drop(rest);
        assert_eq!(pool.usage().used_bytes, 0);
        if keeps {
            pool.stop_keeping();
        }
        assert_eq!(pool.usage().held_bytes, 0, "everything went back");
    }
}
