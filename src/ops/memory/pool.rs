//! The pool: a list of free blocks for each class, and a mark behind each block that says where it came from.
//!
//! A block that is given out for a request of class `r` carries its [`Mark`] at the offset `bytes(r)`: just
//! behind the block where it is one of class `r`, inside it where a larger one had to do. So the
//! layout of a block that is freed tells where its mark is, blocks keep their alignment, and no table has to
//! be searched.

use std::alloc::GlobalAlloc;
use std::alloc::Layout;
use std::alloc::System;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::SeqCst;

use super::classes;
use super::pages;

/// Blocks that may be kept start at a multiple of this many bytes, a cache line; requests of more are not
/// ours.
const ALIGNMENT: usize = 64;

/// What every allocator of a system aligns to; with it `System.realloc` can move pages instead of bytes.
const PLAIN_ALIGNMENT: usize = 16;

/// Bytes behind each block, for its mark.
const MARK_BYTES: usize = 64;

/// When its own class has no free block, a request takes one of at most this many classes above.
const REACH: usize = 2;

/// Where a block came from, and so how it goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The system's allocator, while nothing was kept: never kept.
    Plain,
    /// The system's allocator, aligned to [`ALIGNMENT`].
    Aligned,
    /// Pages of its own.
    Mapped,
}

/// What is remembered of a block that is in use.
#[derive(Debug, Clone, Copy)]
struct Mark {
    class: usize,
    origin: Origin,
}

/// What stands at the start of a free block.
struct Free {
    next: *mut Free,
    origin: Origin,
}

/// The free blocks of a class, each naming the next.
struct FreeList {
    first: *mut Free,
}

// SAFETY: a free block belongs to its list alone, whichever thread holds the list's lock.
unsafe impl Send for FreeList {}

/// Large blocks of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of blocks that were asked of the system and not given back, in use or kept; address space, of
    /// which what was never touched takes no memory.
    pub held_bytes: usize,
    /// The most that `held_bytes` ever was.
    pub peak_held_bytes: usize,
    /// Bytes of blocks in use.
    pub used_bytes: usize,
    /// How many blocks were asked of the system.
    pub system_requests: usize,
}

pub(super) struct Pool {
    free: [Mutex<FreeList>; classes::COUNT],
    keepers: AtomicUsize,
    held_bytes: AtomicUsize,
    peak_held_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    system_requests: AtomicUsize,
    /// How many blocks were pages of their own.
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

    /// Takes back one [`Pool::start_keeping`]; after the last one everything that was kept goes to the
    /// system.
    pub(super) fn stop_keeping(&self) {
        if self.keepers.fetch_sub(1, SeqCst) == 1 {
            self.give_back_all();
        }
    }

    /// Everything that is kept goes to the system; what is freed from now on is kept as before.
    pub(super) fn give_back_all(&self) {
        (0..classes::COUNT).for_each(|class| self.give_back(class));
        pages::trim();
    }

    fn keeps(&self) -> bool {
        self.keepers.load(SeqCst) > 0
    }

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
            // SAFETY: the block is of this class or a larger one, and ours alone since it left its list.
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
            // SAFETY: the block was made with room for its mark.
            unsafe { write_mark(block, class, mark) };
        }
        block
    }

    /// # Safety
    /// `block` must come from [`Pool::allocate`] or [`Pool::resize`] of this pool with `layout`, and have no
    /// users.
    pub(super) unsafe fn free(&self, block: *mut u8, layout: Layout) {
        let Some(class) = class_of(layout.size(), layout) else {
            // SAFETY: such a block came from the system with the same layout.
            return unsafe { System.dealloc(block, layout) };
        };
        // SAFETY: the mark was written where the class of the layout says when the block was given out.
        let mark = unsafe { read_mark(block, class) };
        self.used_bytes.fetch_sub(classes::bytes(mark.class), Relaxed);
        if mark.origin == Origin::Plain || !self.keeps() {
            // SAFETY: the caller gives the block up.
            return unsafe { self.release(block, mark) };
        }
        #[expect(clippy::cast_ptr_alignment, reason = "blocks that are kept are aligned to `ALIGNMENT`")]
        let entry = block.cast::<Free>();
        {
            let mut list = self.list(mark.class);
            // SAFETY: the block has no users, is aligned to `ALIGNMENT` and larger than an entry.
            unsafe { entry.write(Free { next: list.first, origin: mark.origin }) };
            list.first = entry;
        }
        // If keeping was stopped just now, this list may have been emptied before the block came into it.
        if !self.keeps() {
            self.give_back(mark.class);
        }
    }

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
                    // SAFETY: the caller's promise, and a plain block is of the class of its layout.
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
        // SAFETY: the new size is not zero; both blocks hold the bytes that are copied and are different
        // blocks; the old one is freed with its own layout.
        unsafe {
            let moved = self.allocate(new_layout, false);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.free(block, layout);
            }
            moved
        }
    }

    /// # Safety
    /// `block` must be a plain block in use, of the class of `mark`.
    unsafe fn resize_plain(&self, block: *mut u8, mark: Mark, class: usize) -> *mut u8 {
        let Some(layout) = system_layout(mark) else { return std::ptr::null_mut() };
        let (old_bytes, new_bytes) = (classes::bytes(mark.class), classes::bytes(class));
        // SAFETY: the block came from the system with this layout.
        let moved = unsafe { System.realloc(block, layout, new_bytes + MARK_BYTES) };
        if !moved.is_null() {
            self.held_bytes.fetch_sub(old_bytes, Relaxed);
            self.used_bytes.fetch_sub(old_bytes, Relaxed);
            self.count_request(new_bytes);
            self.used_bytes.fetch_add(new_bytes, Relaxed);
            // SAFETY: the block has room for its mark behind the new class.
            unsafe { write_mark(moved, class, Mark { class, ..mark }) };
        }
        moved
    }

    /// A kept block of the class, or of one a little above.
    fn take(&self, class: usize) -> Option<(*mut u8, Mark)> {
        (class..classes::COUNT.min(class + REACH + 1)).find_map(|class| self.pop(class))
    }

    /// Gives back a kept block of a class a little below, which the one that is asked of the system in its
    /// place can serve, too: where sizes differ from step to step, as with the number of masked tokens, each
    /// class that they come to would have blocks of its own.
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
        // SAFETY: an entry of a list is a free block that begins with a valid `Free`; we hold the list's
        // lock.
        let Free { next, origin } = unsafe { entry.read() };
        list.first = next;
        Some((entry.cast(), Mark { class, origin }))
    }

    /// Gives all free blocks of a class back to the system.
    fn give_back(&self, class: usize) {
        while let Some((block, mark)) = self.pop(class) {
            // SAFETY: the block just left its list, so it has no other owner.
            unsafe { self.release(block, mark) };
        }
    }

    /// # Safety
    /// `block` must be one of `mark` without users.
    unsafe fn release(&self, block: *mut u8, mark: Mark) {
        let bytes = classes::bytes(mark.class);
        self.held_bytes.fetch_sub(bytes, Relaxed);
        // SAFETY: the mark says how the block was made, and the sizes are the same.
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

    /// Nothing that may panic or allocate runs under this lock.
    fn list(&self, class: usize) -> MutexGuard<'_, FreeList> {
        self.free[class].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The class that a request of `bytes` with the alignment of `layout` is served from; `None` when it is left
/// to the system.
fn class_of(bytes: usize, layout: Layout) -> Option<usize> {
    if layout.align() > ALIGNMENT { None } else { classes::of(bytes) }
}

/// How a block was asked of the system's allocator; `None` for pages of its own.
fn system_layout(mark: Mark) -> Option<Layout> {
    let align = match mark.origin {
        Origin::Plain => PLAIN_ALIGNMENT,
        Origin::Aligned => ALIGNMENT,
        Origin::Mapped => return None,
    };
    // It cannot fail: a class is far below the address space.
    Layout::from_size_align(classes::bytes(mark.class) + MARK_BYTES, align).ok()
}

/// # Safety
/// `block` must be in use by the caller, of class `class` or a larger one.
unsafe fn write_mark(block: *mut u8, class: usize, mark: Mark) {
    // SAFETY: the offset lies inside a larger block, or in the bytes behind one of this class.
    unsafe { block.add(classes::bytes(class)).cast::<Mark>().write_unaligned(mark) }
}

/// # Safety
/// `block` must have been given out for a request of class `class`.
unsafe fn read_mark(block: *mut u8, class: usize) -> Mark {
    // SAFETY: `write_mark` wrote it when the block was given out; users have no business behind their bytes.
    unsafe { block.add(classes::bytes(class)).cast::<Mark>().read_unaligned() }
}
