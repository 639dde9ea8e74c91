//! Where packing stands between two rows: a few integers, from which any run goes on at once.

use serde::Deserialize;
use serde::Serialize;

/// Where the next row starts. All of resuming is to start from one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Number of the mix of sources that the epoch is made of, in the order in which mixes come.
    #[serde(default, skip_serializing_if = "is_first")]
    pub mix: usize,
    /// Once the mix has changed: where each source stands in the endless order of the first mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<u64>,
    /// Once the mix has changed: tokens used in all epochs before this one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tokens_before: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_first(mix: &usize) -> bool {
    *mix == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

impl Cursor {
    /// The beginning of the next epoch.
    pub(super) fn next_epoch(self) -> Self {
        let Self { epoch, mix, positions, tokens, .. } = self;
        let tokens_before = if positions.is_empty() { 0 } else { self.tokens_before + tokens };
        Self { epoch: epoch + 1, mix, positions, tokens_before, ..Self::default() }
    }
}
