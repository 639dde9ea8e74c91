//! Pages straight from the system for the largest blocks, in huge pages where it has them.

/// Blocks of this size and more are pages of their own.
pub(super) const MAPPED_BYTES: usize = 4 << 20;

/// A huge page on the usual machines.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// No smaller than an ordinary page of any machine.
#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 64 << 10;

/// How far apart the beginnings of two blocks are, counted from the huge pages in which they lie; such a
/// block is aligned to a fifth of it.
pub(super) const OFFSET_BYTES: usize = 5 * 256;

/// So many blocks begin at different places of their huge pages: less than [`PAGE_BYTES`] of the first one is
/// left out.
#[cfg(target_os = "linux")]
const OFFSETS: usize = 48;

/// Zeroed pages for block `number`, counted by the caller; null when there is no memory.
///
/// The system is asked for huge pages: it clears one in a single pass and a thousandth of the faults, and
/// address translation keeps up with large matrices. Blocks begin at different places of them: a pass over
/// several buffers that all begin at one place, as AdamW's, took 2.7 times as long on a Sapphire Rapids; the
/// likely cause is that they meet in the same sets of the caches and banks of the memory.
#[cfg(target_os = "linux")]
pub(super) fn map(bytes: usize, number: usize) -> *mut u8 {
    let offset = number % OFFSETS * OFFSET_BYTES;
    let len = (offset + bytes).next_multiple_of(PAGE_BYTES);
    let wanted = len + HUGE_PAGE_BYTES;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping at an address of the system's choice touches no memory of ours.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), wanted, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(HUGE_PAGE_BYTES);
    let after = HUGE_PAGE_BYTES - before;
    // SAFETY: head and tail lie inside the mapping just made and are not used yet; the block is what
    // remains. The advice changes no contents, and a system without huge pages only refuses it.
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

/// Gives back what [`map`] gave for as many bytes.
///
/// # Safety
/// `block` must come from [`map`] with the same `bytes`, and must not be used any more.
#[cfg(target_os = "linux")]
pub(super) unsafe fn unmap(block: *mut u8, bytes: usize) {
    let offset = block as usize % HUGE_PAGE_BYTES;
    // SAFETY: the mapping begins at a huge page, and the caller promises that this is a whole one without
    // users.
    unsafe { libc::munmap(block.sub(offset).cast(), (offset + bytes).next_multiple_of(PAGE_BYTES)) };
}

/// Gives back the pages of the system's allocator that nothing lies in. It keeps them otherwise wherever
/// something small lies behind them: 20 to 25 MiB after the start of a run of 100.
pub(super) fn trim() {
    // SAFETY: it touches free memory of the allocator alone, under its locks.
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

/// Zeroed memory, aligned to a huge page; null when there is none.
#[cfg(not(target_os = "linux"))]
pub(super) fn map(bytes: usize, _number: usize) -> *mut u8 {
    // SAFETY: the size is not zero.
    unsafe { std::alloc::GlobalAlloc::alloc_zeroed(&std::alloc::System, layout(bytes)) }
}

/// Gives back what [`map`] gave for as many bytes.
///
/// # Safety
/// `block` must come from [`map`] with the same `bytes`, and must not be used any more.
#[cfg(not(target_os = "linux"))]
pub(super) unsafe fn unmap(block: *mut u8, bytes: usize) {
    // SAFETY: the caller promises that the block came from `map` with this layout.
    unsafe { std::alloc::GlobalAlloc::dealloc(&std::alloc::System, block, layout(bytes)) };
}
