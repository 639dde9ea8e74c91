//! Concatenates rows into one batch, chooses the tokens to predict and computes the positions of all tokens.
//!
//! There are two halves, because the first one reads in the order of rows, while any thread can do the second
//! one at any time.

use anyhow::Result;

use crate::batches::mask::MaskBuffers;
use crate::batches::{Batch, Masking, Packer};
use base::rng::{Purpose, Stream};

/// Rows as they were read, before tokens to predict are chosen.
#[derive(Debug, Default)]
pub(super) struct Unmasked {
    batch: Batch,
    row_ends: Vec<u32>,
    /// Number of the first row in the step's global batch.
    first_row: usize,
}

/// Tokens to predict in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Objective {
    /// Tokens that are masked, which are this share of all tokens, from those on both sides.
    Masked(f64),
    /// Each token from those of its segment before it.
    Causal,
}

/// Settings for masking and numbering the rows of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSettings {
    /// Seed of the masks.
    pub(super) seed: u64,
    /// Tokens to predict.
    pub(super) objective: Objective,
    /// Most tokens of a row (S).
    pub(super) max_seq_length: usize,
}

impl Unmasked {
    /// An empty collection of rows that reuses the buffers of `batch`; `first_row` is the number of the first
    /// row in the global batch.
    pub(super) fn new(mut batch: Batch, first_row: usize) -> Self {
        batch.clear();
        batch.cu_seqlens.push(0);
        Self { batch, row_ends: Vec::new(), first_row }
    }

    /// Adds the next row.
    pub(super) fn add_row(&mut self, packer: &mut Packer) -> Result<()> {
        let sample_id = packer.append_row(&mut self.batch)?;
        self.end_row(sample_id);
        Ok(())
    }

    /// Adds the next row of this epoch; returns false at the end of the epoch.
    pub(super) fn add_row_of_epoch(&mut self, packer: &mut Packer) -> Result<bool> {
        let Some(sample_id) = packer.append_row_of_epoch(&mut self.batch)? else { return Ok(false) };
        self.end_row(sample_id);
        Ok(true)
    }

    /// Number of tokens so far.
    pub(super) fn num_tokens(&self) -> usize {
        self.batch.num_tokens()
    }

    fn end_row(&mut self, sample_id: u64) {
        self.batch.sample_ids.push(sample_id);
        self.row_ends.push(self.batch.ids.len() as u32);
    }

    /// Masks each row by the stream of its sample id, or labels each token with the next one, and fills in
    /// the arrays derived from the rows.
    pub(super) fn finish(
        self,
        masking: &Masking,
        settings: StepSettings,
        buffers: &mut MaskBuffers,
    ) -> Batch {
        let Self { mut batch, row_ends, first_row } = self;
        let StepSettings { seed, objective, max_seq_length } = settings;
        if objective == Objective::Causal {
            masking.label_next_tokens(&mut batch);
        }
        let mut start = 0;
        for (number, (&end, &sample_id)) in row_ends.iter().zip(&batch.sample_ids).enumerate() {
            if let Objective::Masked(probability) = objective {
                let stream = Stream::new(seed, Purpose::Mask, sample_id);
                let positions = &mut batch.label_positions;
                let labels = &mut batch.labels;
                let ids = &mut batch.ids[start as usize..end as usize];
                masking.apply_at(probability, stream, ids, buffers, |place, id| {
                    positions.push(start + place);
                    labels.push(id);
                });
            }
            let first_key = ((first_row + number) * max_seq_length) as u64;
            batch.token_keys.extend(first_key..first_key + u64::from(end - start));
            start = end;
        }
        for segment in batch.cu_seqlens.windows(2) {
            batch.position_ids.extend(0..segment[1] - segment[0]);
        }
        // The token types of pairs are already set.
        batch.token_type_ids.resize(batch.ids.len(), 0);
        batch
    }
}
