//! Bias that biased attention adds to blocks of scores on the CPU, and its gradients.

use super::{Block, Task};
use crate::attention::rows;

/// Bias added to the score of a query and a key, which depends on their distance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bias<'a> {
    /// Bias by head and relative position, `[H, 2 N - 1]`: for keys from `N - 1` tokens before a query to `N
    /// - 1` after it, with N the length of the longest segment.
    pub(crate) values: &'a [f32],
    /// Row of the bias table that each relative position uses, `[2 N - 1]`.
    pub(crate) rows: &'a [u32],
    /// Number of rows of the table (R).
    pub(crate) table_rows: usize,
}

impl Bias<'_> {
    /// Adds the bias to the scores of a block, `[queries, keys]`.
    pub(super) fn add(&self, task: Task, block: Block, scores: &mut [f32]) {
        let places = self.rows.len();
        let longest = places.div_ceil(2);
        let of_head = &self.values[task.head * places..][..places];
        for (row, scores) in scores.chunks_exact_mut(block.keys).enumerate() {
            rows::add(scores, &of_head[block.place(row, longest)..][..block.keys]);
        }
    }

    /// Adds the gradients by relative position of a segment, `[2 n - 1]`, to the gradients of the table's
    /// rows.
    pub(super) fn collect(&self, by_place: &[f32], sums: &mut [f32]) {
        let skipped = (self.rows.len() - by_place.len()) / 2;
        for (&d_score, &row) in by_place.iter().zip(&self.rows[skipped..]) {
            sums[row as usize] += d_score;
        }
    }
}

impl Block {
    /// Returns the index, among the `2 * tokens - 1` relative positions, of the block's first key for one of
    /// its queries.
    pub(super) fn place(self, row: usize, tokens: usize) -> usize {
        tokens - 1 + self.first_key - (self.first + row)
    }
}
