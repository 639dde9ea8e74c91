//! The batches of an evaluation: all documents once, in a fixed order, with the same masks in every run.

use std::sync::Arc;

use anyhow::Result;

use crate::batches::collate::{Objective, StepSettings, Unmasked};
use crate::batches::{Batch, Cursor, Frame, MaskBuffers, Masking, Order, Packer};
use crate::shards::ShardSet;

/// Masks of the evaluation do not depend on the seed of the run, so that seeds can be compared.
const SEED: u64 = 0;

/// Iterator over the batches of one evaluation; the last one may be short. Shards without a document have no
/// batches.
pub struct EvaluationBatches {
    packer: Option<Packer>,
    masking: Masking,
    settings: StepSettings,
    buffers: MaskBuffers,
    rows_per_batch: usize,
    /// Number of rows in the batches so far: random draws for a token do not depend on the size of a batch.
    rows_done: usize,
}

impl EvaluationBatches {
    /// Batches of `rows_per_batch` rows; `masking` should be [`Masking::for_evaluation`].
    pub fn new(
        shards: &Arc<ShardSet>,
        frame: Frame,
        masking: Masking,
        rows_per_batch: usize,
    ) -> Result<Self> {
        let packer = match shards.num_tokens() {
            0 => None,
            _ => Some(Packer::new(Arc::clone(shards), Order::Fixed, frame, Cursor::default())?),
        };
        let settings = StepSettings {
            seed: SEED,
            objective: Objective::Masked(masking.probability_at(0, 1)),
            max_seq_length: frame.max_seq_length,
        };
        Ok(Self {
            packer,
            masking,
            settings,
            buffers: MaskBuffers::default(),
            rows_per_batch: rows_per_batch.max(1),
            rows_done: 0,
        })
    }

    fn batch(&mut self) -> Result<Option<Batch>> {
        let Some(packer) = &mut self.packer else { return Ok(None) };
        let mut rows = Unmasked::new(Batch::default(), self.rows_done);
        for _ in 0..self.rows_per_batch {
            if !rows.add_row_of_epoch(packer)? {
                break;
            }
            self.rows_done += 1;
        }
        let is_empty = rows.num_tokens() == 0;
        Ok((!is_empty).then(|| rows.finish(&self.masking, self.settings, &mut self.buffers)))
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
