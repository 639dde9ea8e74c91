//! The allocator of large blocks: what a training step frees is kept for the next step.
//!
//! Every step allocates the same activations. Given back to the system and asked for again, each of their
//! pages is cleared by the kernel at its first touch. candle's storages are `Vec`s, so the global allocator
//! is the one place that sees both the birth and the death of every activation: [`LargeBlocks`] is that
//! allocator, and no op knows of it. A program installs it:
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: LargeBlocks = LargeBlocks;
//! ```
//!
//! Blocks of 64 KiB and more come in eight sizes to each power of two (`classes.rs`); smaller requests go to
//! the system's allocator as they are. Only while [`keep_freed_blocks`] holds are freed blocks kept: what
//! runs in bounded memory otherwise, such as `prepare`, gives them back at once.

mod classes;
mod pages;
mod pool;
#[cfg(test)]
mod tests;

use std::alloc::GlobalAlloc;
use std::alloc::Layout;

use pool::Pool;
pub use pool::Usage;

static POOL: Pool = Pool::new();

/// The global allocator of a program that trains.
#[derive(Debug, Clone, Copy, Default)]
pub struct LargeBlocks;

// SAFETY: the pool gives out each block to one owner at a time, with at least the size and alignment that the
// layout asks for.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout has a size, as our caller promises.
        unsafe { POOL.allocate(layout, false) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { POOL.allocate(layout, true) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: our caller promises that the block came from here with this layout.
        unsafe { POOL.free(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`, and the new size is not zero.
        unsafe { POOL.resize(block, layout, bytes) }
    }
}

/// While this lives, freed blocks are kept; with the last one of a process they go back to the system.
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
/// Resident memory stays at its peak meanwhile: for a loop that needs it again in every step. Where
/// [`LargeBlocks`] is not the global allocator it does nothing.
pub fn keep_freed_blocks() -> Keeping {
    POOL.start_keeping();
    Keeping(())
}

/// Gives back to the system what was kept so far: for the moment before work whose blocks have other sizes,
/// which would lie beside those that are kept.
pub fn give_back_freed_blocks() {
    POOL.give_back_all();
}

/// What the large blocks of this process come to now; all zero where [`LargeBlocks`] is not the global
/// allocator.
pub fn usage() -> Usage {
    POOL.usage()
}
