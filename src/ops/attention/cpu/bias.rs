//! What biased attention adds to blocks of scores on the CPU, and what their gradients come to for it.

use super::Block;
use super::Task;
use crate::attention::rows;

/// What is added to the score of a query and a key by the distance between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bias<'a> {
    /// `[H, 2 N - 1]`: for keys from `N - 1` tokens before a query to as many behind it, N that of the
    /// longest segment.
    pub(crate) values: &'a [f32],
    /// The row of the table that each of these places takes, `[2 N - 1]`.
    pub(crate) rows: &'a [u32],
    /// Rows of the table (R).
    pub(crate) table_rows: usize,
}

impl Bias<'_> {
    /// Adds to the scores of a block, `[queries, keys]`.
    pub(super) fn add(&self, task: Task, block: Block, scores: &mut [f32]) {
        let (places, longest) = (self.rows.len(), self.rows.len().div_ceil(2));
        let of_head = &self.values[task.head * places..][..places];
        for (row, scores) in scores.chunks_exact_mut(block.keys).enumerate() {
            rows::add(scores, &of_head[block.place(row, longest)..][..block.keys]);
        }
    }

    /// Adds the gradients of a segment's places, `[2 n - 1]`, up to those of the rows of the table.
    pub(super) fn collect(&self, by_place: &[f32], sums: &mut [f32]) {
        let beside = (self.rows.len() - by_place.len()) / 2;
        for (&d_score, &row) in by_place.iter().zip(&self.rows[beside..]) {
            sums[row as usize] += d_score;
        }
    }
}

impl Block {
    /// Of the places of `tokens` tokens that of the first key for a query of the block.
    pub(super) fn place(self, row: usize, tokens: usize) -> usize {
        tokens - 1 + self.first_key - (self.first + row)
    }
}
