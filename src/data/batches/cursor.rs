//! The position of packing between two rows: a few integers from which a run can resume immediately.

use serde::{Deserialize, Serialize};

/// The position at which the next row starts. Resuming means starting from such a position.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// Number of complete passes over the data.
    pub epoch: u64,
    /// Place in the epoch's order of the next document, or of the first document of the window.
    pub index: u64,
    /// Number of tokens of that document that are already used; for a document with chunks, of its rest.
    pub token: u64,
    /// Place of the next chunk in the epoch's order of chunks, or in that of the window of shards.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chunk: u64,
    /// Number of tokens of that chunk that are already used.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chunk_token: u64,
    /// Number of the window of shards, if shards are grouped in windows and documents are divided into
    /// chunks.
    #[serde(default, skip_serializing_if = "is_first")]
    pub shard_window: usize,
    /// Number of rows made in this epoch.
    pub row: u64,
    /// Number of tokens used in this epoch, without special tokens.
    pub tokens: u64,
    /// Number of rows of the window that are already used (best fit only).
    pub window_row: u64,
    /// The row length for which the window was planned; 0 if no window is open (best fit only).
    pub window_seq_length: u64,
    /// Number of the epoch's mix of sources, in the order of the mixes.
    #[serde(default, skip_serializing_if = "is_first")]
    pub mix: usize,
    /// Once the mix has changed: position of each source in the endless order of the first mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<u64>,
    /// Once the mix has changed: the same for the chunks of each source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunk_positions: Vec<u64>,
    /// Once the mix has changed: number of tokens used in all epochs before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_before: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_first(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Cursor {
    /// The number of used tokens of the current chunk, or of the current document.
    pub(super) fn token_of(&mut self, chunk: bool) -> &mut u64 {
        if chunk { &mut self.chunk_token } else { &mut self.token }
    }

    /// The beginning of the next epoch.
    pub(super) fn next_epoch(self) -> Self {
        let Self { epoch, mix, positions, chunk_positions, tokens, .. } = self;
        let tokens_before = if positions.is_empty() { 0 } else { self.tokens_before + tokens };
        Self { epoch: epoch + 1, mix, positions, chunk_positions, tokens_before, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_among_whole_documents_is_written_as_before_there_were_chunks() {
        let old =
            r#"{"epoch":1,"index":7,"token":3,"row":9,"tokens":120,"window_row":0,"window_seq_length":0}"#;
        let cursor: Cursor = serde_json::from_str(old).unwrap();
        assert_eq!(cursor, Cursor { epoch: 1, index: 7, token: 3, row: 9, tokens: 120, ..Cursor::default() });
        assert_eq!(serde_json::to_string(&cursor).unwrap(), old);
    }
}
