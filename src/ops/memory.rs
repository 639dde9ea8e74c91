//! How freed memory is kept for the next step; it allocates nothing itself.

/// Lets the process keep the memory that it frees instead of giving each large block back to the system.
///
/// Every step allocates the same activations. glibc maps a large block afresh each time, and the system clears its pages at
/// the first touch: 10 % of the CPU time of a step. Call it once, before the first large allocation; it never fails, and
/// without glibc it does nothing. Resident memory stays at its peak, which the next step needs again anyway.
pub fn keep_freed_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The heap grows by this many bytes at a time.
        const GROWTH_BYTES: i32 = 64 << 20;
        /// Never trims the top of the heap.
        const NEVER: i32 = -1;
        for (option, value) in [(libc::M_MMAP_MAX, 0), (libc::M_TRIM_THRESHOLD, NEVER), (libc::M_TOP_PAD, GROWTH_BYTES)] {
            // SAFETY: `mallopt` only sets options of the allocator; it reads no memory of ours.
            unsafe { libc::mallopt(option, value) };
        }
    }
}
