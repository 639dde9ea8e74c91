//! Where packing stands between two rows: a few integers, from which any run goes on at once.

use serde::Deserialize;
use serde::Serialize;

/// Where the next row starts. All of resuming is to start from one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// Passes over the data that are complete.
    pub epoch: u64,
    /// Place in the epoch's order of the document that comes next, or of the first one of the window.
    pub index: u64,
    /// Tokens of that document that are used already.
    pub token: u64,
    /// Rows made in this epoch.
    pub row: u64,
    /// Tokens used in this epoch, without special tokens.
    pub tokens: u64,
    /// Rows of the window that are used already (best fit only).
    pub window_row: u64,
    /// The row length that the window was planned with; 0 when none is open (best fit only).
    pub window_seq_length: u64,
}
