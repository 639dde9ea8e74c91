//! Memory mappings from the system for the largest blocks, in huge pages if the system has them.

/// Blocks of at least this size get a memory mapping of their own.
pub(super) const MAPPED_BYTES: usize = 4 << 20;

/// Size of a huge page on the usual machines.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A multiple of the ordinary page size of every machine.
#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 64 << 10;

/// Each block begins this many bytes further into its huge page than the block before it. Blocks are thus
/// aligned to a fifth of it.
pub(super) const OFFSET_BYTES: usize = 5 * 256;

/// Number of different offsets into a huge page; the next block begins at offset 0 again. The largest offset
/// is less than [`PAGE_BYTES`].
#[cfg(target_os = "linux")]
const OFFSETS: usize = 48;

/// Maps zeroed pages for block number `number`, counted by the caller; returns null if there is no memory.
///
/// The system is asked for huge pages: it clears each in a single pass, with a thousandth of the page faults,
/// and address translation keeps up with large matrices. Blocks begin at different offsets into their huge
/// pages. With equal offsets, a pass over several buffers, such as AdamW's, took 2.7 times as long on a
/// Sapphire Rapids; the likely cause is that the buffers then compete for the same sets of the caches and the
/// same banks of the memory.
#[cfg(target_os = "linux")]
pub(super) fn map(bytes: usize, number: usize) -> *mut u8 {
    let offset = number % OFFSETS * OFFSET_BYTES;
    let len = (offset + bytes).next_multiple_of(PAGE_BYTES);
    let wanted = len + HUGE_PAGE_BYTES;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private mapping at an address that the system chooses does not touch memory in use.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), wanted, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(HUGE_PAGE_BYTES);
    let after = HUGE_PAGE_BYTES - before;
    // SAFETY: the two unmapped ranges, before and after the block, are inside the mapping just made and not
    // in use. The advice changes no contents, and a system without huge pages only refuses it.
    unsafe {
        let block = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        libc::munmap(block.add(len).cast(), after);
        libc::madvise(block.cast(), len, libc::MADV_HUGEPAGE);
        block.add(offset)
    }
}

/// Unmaps a block that [`map`] returned for the same number of bytes.
///
/// # Safety
/// `block` must come from [`map`] with the same `bytes`, and must not be used any more.
#[cfg(target_os = "linux")]
pub(super) unsafe fn unmap(block: *mut u8, bytes: usize) {
    let offset = block as usize % HUGE_PAGE_BYTES;
    // SAFETY: the mapping begins at a huge page, and the caller promises that this is a whole mapping that
    // nobody uses any more.
    unsafe { libc::munmap(block.sub(offset).cast(), (offset + bytes).next_multiple_of(PAGE_BYTES)) };
}

/// Makes the system's allocator return its unused pages to the system. Otherwise it keeps free pages that are
/// followed by any block in use: 20 to 25 MiB after the start of a run of 100.
pub(super) fn trim() {
    // SAFETY: `malloc_trim` touches only free memory of the allocator, under the allocator's locks.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(target_os = "linux"))]
fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, HUGE_PAGE_BYTES)
        .expect("a class is far below the address space")
}

/// Allocates zeroed memory aligned to a huge page; returns null if there is no memory.
#[cfg(not(target_os = "linux"))]
pub(super) fn map(bytes: usize, _number: usize) -> *mut u8 {
    // SAFETY: the size is not zero.
    unsafe { std::alloc::GlobalAlloc::alloc_zeroed(&std::alloc::System, layout(bytes)) }
}

/// Frees a block that [`map`] returned for the same number of bytes.
///
/// # Safety
/// `block` must come from [`map`] with the same `bytes`, and must not be used any more.
#[cfg(not(target_os = "linux"))]
pub(super) unsafe fn unmap(block: *mut u8, bytes: usize) {
    // SAFETY: the caller promises that the block came from `map` with this layout.
    unsafe { std::alloc::GlobalAlloc::dealloc(&std::alloc::System, block, layout(bytes)) };
}
