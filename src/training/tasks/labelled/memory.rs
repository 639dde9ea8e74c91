//! Limit on the memory of the examples of a file, so that a few kilobytes cannot decompress to gigabytes.

use anyhow::Result;

use base::error::Problem;
use base::quantity::format_bytes;

/// Bytes of memory that the examples of any file may take.
const ALLOWED_BYTES: u64 = 128 << 20;

/// Further bytes of memory for each (possibly compressed) byte of the file. Compressed text decompresses to
/// at most ten times its size, and an example of a few words takes ten times their length; a file that
/// exceeds this limit is made to fill the memory.
const ALLOWED_PER_BYTE: u64 = 256;

/// Approximate overhead of an allocation, in bytes.
pub(super) const BLOCK_BYTES: usize = 16;

/// Bytes of memory that the examples of a file take so far.
#[derive(Debug, Default)]
pub(super) struct ExampleMemory(u64);

impl ExampleMemory {
    /// Adds an example of `bytes`. Returns an error that names its `place` if all examples take too much
    /// memory for the `position_bytes` of the file that were read.
    pub(super) fn add(&mut self, bytes: u64, position_bytes: u64, place: impl Fn() -> String) -> Result<()> {
        self.0 += bytes;
        if self.0 <= ALLOWED_BYTES.saturating_add(position_bytes.saturating_mul(ALLOWED_PER_BYTE)) {
            return Ok(());
        }
        let read = format_bytes(position_bytes);
        let examples = format_bytes(self.0);
        Err(Problem::new(format!("{read} of this file unfold to {examples} of examples"))
            .at(place())
            .hint("no text is so repetitive: name the decompressed file if it is meant all the same")
            .into())
    }
}
