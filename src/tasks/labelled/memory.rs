//! How much memory what was read of a file may take: a few kilobytes that unfold to gigabytes are no
//! examples.

use anyhow::Result;

use crate::error::Problem;
use crate::quantity::format_bytes;

/// Memory that the examples of any file may take.
const HELD_BYTES: u64 = 128 << 20;

/// Memory besides for each byte of the file, as it lies on the disk. Compressed text unfolds to ten times its
/// size at most, and an example of a few words takes ten times their length; kilobytes that are to fill the
/// memory are something else.
const HELD_PER_BYTE: u64 = 256;

/// A block of memory has about so many bytes besides its content.
pub(super) const BLOCK_BYTES: usize = 16;

/// What the examples of a file take so far.
#[derive(Debug, Default)]
pub(super) struct Held(u64);

impl Held {
    /// Adds an example; an error that names its `place` where all of them are too much for the
    /// `position_bytes` of the file that were read.
    pub(super) fn add(&mut self, bytes: u64, position_bytes: u64, place: impl Fn() -> String) -> Result<()> {
        self.0 += bytes;
        if self.0 <= HELD_BYTES.saturating_add(position_bytes.saturating_mul(HELD_PER_BYTE)) {
            return Ok(());
        }
        let (read, held) = (format_bytes(position_bytes), format_bytes(self.0));
        Err(Problem::new(format!("{read} of this file unfold to {held} of examples"))
            .at(place())
            .hint("no text is so repetitive: name the decompressed file if it is meant all the same")
            .into())
    }
}
