//! The pool of large blocks: a list of free blocks for each size class, and a mark after each block that
//! records where the block came from.
//!
//! A block that serves a request of class `r` has its [`Mark`] at the offset `bytes(r)`: directly after the
//! block if the block is of class `r`, inside the block if it is of a larger class. So the offset of the mark
//! follows from the layout with which a block is freed, blocks keep their alignment, and no table has to be
//! searched.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{classes, pages};

/// Alignment in bytes of blocks that may be kept, a cache line. Requests with a larger alignment go to the
/// system's allocator.
const ALIGNMENT: usize = 64;

/// The alignment that every system allocator provides. With it, `System.realloc` can move pages instead of
/// copying bytes.
const PLAIN_ALIGNMENT: usize = 16;

/// Bytes reserved after each block for its mark.
const MARK_BYTES: usize = 64;

/// If its own class has no free block, a request may take one of up to this many classes above.
const REACH: usize = 2;

/// Origin of a block, which determines how it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The system's allocator, at a time when freed blocks were not kept. Such a block is never kept.
    Plain,
    /// The system's allocator, aligned to [`ALIGNMENT`].
    Aligned,
    /// A memory mapping of its own (`pages.rs`).
    Mapped,
}

/// The class and the origin of a block in use, stored next to the block's data.
#[derive(Debug, Clone, Copy)]
struct Mark {
    class: usize,
    origin: Origin,
}

/// The list entry that is stored in the first bytes of a free block.
struct Free {
    next: *mut Free,
    origin: Origin,
}

/// The free blocks of a class, as a linked list.
struct FreeList {
    first: *mut Free,
}

// SAFETY: only the list refers to a free block, and only the thread that holds the list's lock uses the list.
unsafe impl Send for FreeList {}

/// Sizes and counts of the large blocks of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of blocks that were requested from the system and not returned, in use or kept. This is address
    /// space: pages that were never touched take no memory.
    pub held_bytes: usize,
    /// The largest value that `held_bytes` ever had.
    pub peak_held_bytes: usize,
    /// Bytes of blocks in use.
    pub used_bytes: usize,
    /// Number of blocks that were requested from the system.
    pub system_requests: usize,
}

pub(super) struct Pool {
    free: [Mutex<FreeList>; classes::COUNT],
    /// Number of calls of `start_keeping` without a matching `stop_keeping`; freed blocks are kept if it is
    /// not 0.
    keepers: AtomicUsize,
    held_bytes: AtomicUsize,
    peak_held_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    system_requests: AtomicUsize,
    /// Number of blocks that were mapped so far; it selects the offset of the next one into its huge page.
    mapped: AtomicUsize,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            free: [const { Mutex::new(FreeList { first: std::ptr::null_mut() }) }; classes::COUNT],
            keepers: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            peak_held_bytes: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            system_requests: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            held_bytes: self.held_bytes.load(Relaxed),
            peak_held_bytes: self.peak_held_bytes.load(Relaxed),
            used_bytes: self.used_bytes.load(Relaxed),
            system_requests: self.system_requests.load(Relaxed),
        }
    }

    pub(super) fn start_keeping(&self) {
        self.keepers.fetch_add(1, SeqCst);
    }

    /// Ends one [`Pool::start_keeping`]. When the last one ends, all kept blocks return to the system.
    pub(super) fn stop_keeping(&self) {
        if self.keepers.fetch_sub(1, SeqCst) == 1 {
            self.give_back_all();
        }
    }

    /// Returns all kept blocks to the system. Blocks that are freed later are kept as before.
    pub(super) fn give_back_all(&self) {
        (0..classes::COUNT).for_each(|class| self.give_back(class));
        pages::trim();
    }

    fn keeps(&self) -> bool {
        self.keepers.load(SeqCst) > 0
    }

    /// Returns a block for `layout`, from the free lists if possible; null if there is no memory.
    ///
    /// # Safety
    /// The size of the layout must not be zero.
    pub(super) unsafe fn allocate(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        let Some(class) = class_of(layout.size(), layout) else {
            // SAFETY: the caller's promise.
            return unsafe { if zeroed { System.alloc_zeroed(layout) } else { System.alloc(layout) } };
        };
        let keeps = self.keeps();
        if let Some((block, mark)) = if keeps { self.take(class) } else { None } {
            self.used_bytes.fetch_add(classes::bytes(mark.class), Relaxed);
            // SAFETY: the block is of this class or a larger one, and has no other owner since it left its
            // list.
            unsafe {
                write_mark(block, class, mark);
                if zeroed {
                    block.write_bytes(0, layout.size());
                }
            }
            return block;
        }
        if keeps {
            self.give_up_smaller(class);
        }
        let origin = match classes::bytes(class) {
            _ if !keeps && layout.align() <= PLAIN_ALIGNMENT => Origin::Plain,
            bytes if keeps && bytes >= pages::MAPPED_BYTES => Origin::Mapped,
            _ => Origin::Aligned,
        };
        let mark = Mark { class, origin };
        let block = match system_layout(mark) {
            None => pages::map(classes::bytes(class) + MARK_BYTES, self.mapped.fetch_add(1, Relaxed)),
            // SAFETY: no class is empty.
            Some(layout) => unsafe {
                if zeroed { System.alloc_zeroed(layout) } else { System.alloc(layout) }
            },
        };
        if !block.is_null() {
            self.count_request(classes::bytes(class));
            self.used_bytes.fetch_add(classes::bytes(class), Relaxed);
            // SAFETY: the block was allocated with room for its mark.
            unsafe { write_mark(block, class, mark) };
        }
        block
    }

    /// Puts a block on its free list, or returns it to the system if freed blocks are not kept.
    ///
    /// # Safety
    /// `block` must come from [`Pool::allocate`] or [`Pool::resize`] of this pool with `layout`, and must not
    /// be used any more.
    pub(super) unsafe fn free(&self, block: *mut u8, layout: Layout) {
        let Some(class) = class_of(layout.size(), layout) else {
            // SAFETY: such a block came from the system with the same layout.
            return unsafe { System.dealloc(block, layout) };
        };
        // SAFETY: when the block was handed out, its mark was written at the offset that the layout's class
        // gives.
        let mark = unsafe { read_mark(block, class) };
        self.used_bytes.fetch_sub(classes::bytes(mark.class), Relaxed);
        if mark.origin == Origin::Plain || !self.keeps() {
            // SAFETY: the caller no longer uses the block.
            return unsafe { self.release(block, mark) };
        }
        #[expect(clippy::cast_ptr_alignment, reason = "blocks that are kept are aligned to `ALIGNMENT`")]
        let entry = block.cast::<Free>();
        {
            let mut list = self.list(mark.class);
            // SAFETY: the block is unused; it is aligned to `ALIGNMENT` and larger than an entry.
            unsafe { entry.write(Free { next: list.first, origin: mark.origin }) };
            list.first = entry;
        }
        // If `stop_keeping` ran just now, it may have emptied this list before the block was added to it.
        if !self.keeps() {
            self.give_back(mark.class);
        }
    }

    /// Changes the size of a block to `bytes`, moving its contents if necessary; returns null if there is no
    /// memory.
    ///
    /// # Safety
    /// As for [`Pool::free`]; `bytes` must not be zero.
    pub(super) unsafe fn resize(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        match (class_of(layout.size(), layout), class_of(bytes, layout)) {
            // SAFETY: such a block came from the system with the same layout.
            (None, None) => return unsafe { System.realloc(block, layout, bytes) },
            (Some(old), Some(new)) if old == new => return block,
            (Some(old), Some(new)) => {
                // SAFETY: as in `free`.
                let mark = unsafe { read_mark(block, old) };
                if mark.origin == Origin::Plain && !self.keeps() {
                    // SAFETY: the caller's promise; and a plain block always has the class of its layout.
                    return unsafe { self.resize_plain(block, mark, new) };
                }
                if new <= mark.class && mark.class - new <= REACH {
                    // SAFETY: the block is of the new class or a larger one.
                    unsafe { write_mark(block, new, mark) };
                    return block;
                }
            }
            _ => {}
        }
        let Ok(new_layout) = Layout::from_size_align(bytes, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the new size is not zero; the blocks are different, and both are at least as long as the
        // copied range; the old block is freed with its own layout.
        unsafe {
            let moved = self.allocate(new_layout, false);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.free(block, layout);
            }
            moved
        }
    }

    /// Changes the class of a block that came from the system's allocator, with `System.realloc`.
    ///
    /// # Safety
    /// `block` must be a plain block in use, of the class of `mark`.
    unsafe fn resize_plain(&self, block: *mut u8, mark: Mark, class: usize) -> *mut u8 {
        let Some(layout) = system_layout(mark) else { return std::ptr::null_mut() };
        let old_bytes = classes::bytes(mark.class);
        let new_bytes = classes::bytes(class);
        // SAFETY: the block came from the system with this layout.
        let moved = unsafe { System.realloc(block, layout, new_bytes + MARK_BYTES) };
        if !moved.is_null() {
            self.held_bytes.fetch_sub(old_bytes, Relaxed);
            self.used_bytes.fetch_sub(old_bytes, Relaxed);
            self.count_request(new_bytes);
            self.used_bytes.fetch_add(new_bytes, Relaxed);
            // SAFETY: the block has room for its mark after the bytes of the new class.
            unsafe { write_mark(moved, class, Mark { class, ..mark }) };
        }
        moved
    }

    /// Takes a kept block of the class, or of one up to [`REACH`] classes above.
    fn take(&self, class: usize) -> Option<(*mut u8, Mark)> {
        (class..classes::COUNT.min(class + REACH + 1)).find_map(|class| self.pop(class))
    }

    /// Returns a kept block of up to [`REACH`] classes below `class` to the system, before a block of `class`
    /// is requested, which can serve those smaller requests, too. Otherwise each class would collect kept
    /// blocks if sizes differ from step to step, as with the number of masked tokens.
    fn give_up_smaller(&self, class: usize) {
        if let Some((block, mark)) =
            (class.saturating_sub(REACH)..class).rev().find_map(|class| self.pop(class))
        {
            // SAFETY: the block just left its list, so it has no other owner.
            unsafe { self.release(block, mark) };
        }
    }

    fn pop(&self, class: usize) -> Option<(*mut u8, Mark)> {
        let mut list = self.list(class);
        let entry = list.first;
        if entry.is_null() {
            return None;
        }
        // SAFETY: an entry of a list is a free block that begins with a valid `Free`, and the list is locked.
        let Free { next, origin } = unsafe { entry.read() };
        list.first = next;
        Some((entry.cast(), Mark { class, origin }))
    }

    /// Returns all free blocks of a class to the system.
    fn give_back(&self, class: usize) {
        while let Some((block, mark)) = self.pop(class) {
            // SAFETY: the block just left its list, so it has no other owner.
            unsafe { self.release(block, mark) };
        }
    }

    /// Returns a block to the system.
    ///
    /// # Safety
    /// `block` must have the class and origin of `mark`, and must not be used any more.
    unsafe fn release(&self, block: *mut u8, mark: Mark) {
        let bytes = classes::bytes(mark.class);
        self.held_bytes.fetch_sub(bytes, Relaxed);
        // SAFETY: the block is released in the way in which its origin allocated it, with the same size.
        unsafe {
            match system_layout(mark) {
                None => pages::unmap(block, bytes + MARK_BYTES),
                Some(layout) => System.dealloc(block, layout),
            }
        }
    }

    fn count_request(&self, bytes: usize) {
        let held = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        self.peak_held_bytes.fetch_max(held, Relaxed);
        self.system_requests.fetch_add(1, Relaxed);
    }

    /// Locks the free list of a class. Code under this lock must neither panic nor allocate.
    fn list(&self, class: usize) -> MutexGuard<'_, FreeList> {
        self.free[class].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The class of a request of `bytes` with the alignment of `layout`; `None` if the system's allocator serves
/// it.
fn class_of(bytes: usize, layout: Layout) -> Option<usize> {
    if layout.align() > ALIGNMENT { None } else { classes::class_for(bytes) }
}

/// The layout with which a block was requested from the system's allocator; `None` for a mapped block.
fn system_layout(mark: Mark) -> Option<Layout> {
    let align = match mark.origin {
        Origin::Plain => PLAIN_ALIGNMENT,
        Origin::Aligned => ALIGNMENT,
        Origin::Mapped => return None,
    };
    // It cannot fail: a class is far below the address space.
    Layout::from_size_align(classes::bytes(mark.class) + MARK_BYTES, align).ok()
}

/// Stores the mark of a block that serves a request of class `class`.
///
/// # Safety
/// The caller must own `block`, which must be of class `class` or a larger one.
unsafe fn write_mark(block: *mut u8, class: usize, mark: Mark) {
    // SAFETY: the offset is inside a block of a larger class, or in the bytes reserved after one of this
    // class.
    unsafe { block.add(classes::bytes(class)).cast::<Mark>().write_unaligned(mark) }
}

/// Reads the mark of a block that serves a request of class `class`.
///
/// # Safety
/// `block` must have been handed out for a request of class `class`.
unsafe fn read_mark(block: *mut u8, class: usize) -> Mark {
    // SAFETY: `write_mark` wrote the mark when the block was handed out, and users do not write past their
    // bytes.
    unsafe { block.add(classes::bytes(class)).cast::<Mark>().read_unaligned() }
}
