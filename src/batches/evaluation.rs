//! All documents once, in a fixed order, with the same masks each time, in every run.

use std::sync::Arc;

use anyhow::Result;

use crate::batches::Batch;
use crate::batches::Cursor;
use crate::batches::Frame;
use crate::batches::Masking;
use crate::batches::Order;
use crate::batches::Packer;
use crate::batches::collate;
use crate::shards::ShardSet;

/// Masks of the evaluation do not depend on the seed of the run, so that seeds can be compared.
const SEED: u64 = 0;

/// Iterates over the batches of one evaluation; the last one may be short. Shards without a document give none.
pub struct EvaluationBatches {
    packer: Option<Packer>,
    num_tokens: u64,
    max_seq_length: usize,
    masking: Masking,
    rows_per_batch: usize,
}

impl EvaluationBatches {
    /// Batches of `rows_per_batch` rows; `masking` should be [`Masking::for_evaluation`].
    pub fn new(shards: &Arc<ShardSet>, frame: Frame, masking: Masking, rows_per_batch: usize) -> Result<Self> {
        let packer = match shards.num_tokens() {
            0 => None,
            _ => Some(Packer::new(Arc::clone(shards), Order::Fixed, frame, Cursor::default())?),
        };
        let rows_per_batch = rows_per_batch.max(1);
        Ok(Self { packer, num_tokens: shards.num_tokens(), max_seq_length: frame.max_seq_length, masking, rows_per_batch })
    }

    fn batch(&mut self) -> Result<Option<Batch>> {
        let Some(packer) = &mut self.packer else { return Ok(None) };
        let mut batch = Batch::default();
        for row in 0..self.rows_per_batch {
            if packer.cursor().tokens == self.num_tokens {
                break;
            }
            collate::add_row(&mut batch, packer.next_row()?, &self.masking, SEED, (row * self.max_seq_length) as u64);
        }
        Ok((!batch.ids.is_empty()).then_some(batch))
    }
}

impl Iterator for EvaluationBatches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch().transpose();
        if let Some(Err(_)) = &batch {
            self.packer = None;
        }
        batch
    }
}
