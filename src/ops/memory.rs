//! A global allocator that keeps the large blocks freed by one training step for the next step.
//!
//! Every step allocates the same activations. If their memory were returned to the system and requested
//! again, the kernel would clear each page again at its first touch. candle stores tensors in `Vec`s, so only
//! the global allocator sees both the allocation and the release of every activation: [`LargeBlocks`] is that
//! allocator, and ops do not know about it. A program installs it:
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: LargeBlocks = LargeBlocks;
//! ```
//!
//! Blocks of 64 KiB and more have one of eight sizes per power of two (`classes.rs`); smaller requests are
//! passed on to the system's allocator. Freed blocks are kept only while a result of [`keep_freed_blocks`] is
//! alive. Otherwise they return to the system at once, for code such as `prepare` that runs in bounded
//! memory.
//!
//! With mimalloc 0.1.52 in its place (two Zen-3 cores, f32, three rounds in turn, 2026-11-30) a base model
//! trained on 211, 218 and 200 tokens/s instead of 227, 222 and 247, with 1 % more memory at the peak; a tiny
//! one on 28,620, 27,093 and 31,064 instead of 27,166, 27,530 and 27,396, with 25 % more.

mod classes;
mod pages;
mod pool;
#[cfg(test)]
mod tests;

use std::alloc::{GlobalAlloc, Layout};

use pool::Pool;
pub use pool::Usage;

static POOL: Pool = Pool::new();

/// The global allocator of programs that train; see the module's documentation.
#[derive(Debug, Clone, Copy, Default)]
pub struct LargeBlocks;

// SAFETY: the pool gives out each block to one owner at a time, with at least the size and alignment that the
// layout asks for.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size of the layout is not zero, as the caller promises.
        unsafe { POOL.allocate(layout, false) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { POOL.allocate(layout, true) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that the block came from this allocator with this layout.
        unsafe { POOL.free(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`, and the new size is not zero.
        unsafe { POOL.resize(block, layout, bytes) }
    }
}

/// Freed blocks are kept while a value of this type is alive. When the last one of the process is dropped,
/// they return to the system.
#[derive(Debug)]
#[must_use = "freed blocks are kept only as long as this lives"]
pub struct Keeping(());

impl Drop for Keeping {
    fn drop(&mut self) {
        POOL.stop_keeping();
    }
}

/// Keeps large blocks that are freed from now on, for the next request of their size, until the result is
/// dropped.
///
/// Resident memory then stays at its peak, so this is for a loop that needs that memory again in every step.
/// Does nothing if [`LargeBlocks`] is not the global allocator.
pub fn keep_freed_blocks() -> Keeping {
    POOL.start_keeping();
    Keeping(())
}

/// Returns all blocks kept so far to the system. Call it before work that needs blocks of other sizes, which
/// would take memory in addition to the kept ones.
pub fn give_back_freed_blocks() {
    POOL.give_back_all();
}

/// Returns the current sizes and counts of this process's large blocks; all zero if [`LargeBlocks`] is not
/// the global allocator.
pub fn usage() -> Usage {
    POOL.usage()
}
