//! Lays rows end to end in one batch, then masks them and says where each token stands.
//!
//! Two halves, because the first reads in the order of rows and the second can be done by any thread at any
//! time.

use anyhow::Result;

use crate::batches::Batch;
use crate::batches::Masking;
use crate::batches::Packer;
use crate::batches::mask::MaskBuffers;
use crate::rng::Purpose;
use crate::rng::Stream;

/// Rows as they were read.
#[derive(Debug, Default)]
pub(super) struct Unmasked {
    batch: Batch,
    row_ends: Vec<u32>,
    /// Number of the first row in the step's global batch.
    first_row: usize,
}

/// How the rows of a step are masked and numbered.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSettings {
    /// Seed of the masks.
    pub(super) seed: u64,
    /// Share of the tokens to mask.
    pub(super) probability: f64,
    /// Most tokens of a row (S).
    pub(super) max_seq_length: usize,
}

impl Unmasked {
    /// Rows to come into `batch`, whose buffers are used; `first_row` is the number of the first one in the
    /// global batch.
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

    /// Adds the next row of this epoch; `false` at its end.
    pub(super) fn add_row_of_epoch(&mut self, packer: &mut Packer) -> Result<bool> {
        let Some(sample_id) = packer.append_row_of_epoch(&mut self.batch)? else { return Ok(false) };
        self.end_row(sample_id);
        Ok(true)
    }

    /// Tokens so far.
    pub(super) fn num_tokens(&self) -> usize {
        self.batch.num_tokens()
    }

    fn end_row(&mut self, sample_id: u64) {
        self.batch.sample_ids.push(sample_id);
        self.row_ends.push(self.batch.ids.len() as u32);
    }

    /// Masks each row by the stream of its sample id, and fills in what follows from the rows.
    pub(super) fn finish(
        self,
        masking: &Masking,
        settings: StepSettings,
        buffers: &mut MaskBuffers,
    ) -> Batch {
        let Self { mut batch, row_ends, first_row } = self;
        let StepSettings { seed, probability, max_seq_length } = settings;
        let mut start = 0;
        for (number, (&end, &sample_id)) in row_ends.iter().zip(&batch.sample_ids).enumerate() {
            let stream = Stream::new(seed, Purpose::Mask, sample_id);
            let (positions, labels) = (&mut batch.label_positions, &mut batch.labels);
            masking.apply_at(
                probability,
                stream,
                &mut batch.ids[start as usize..end as usize],
                buffers,
                |place, id| {
                    positions.push(start + place);
                    labels.push(id);
                },
            );
            let first_key = ((first_row + number) * max_seq_length) as u64;
            batch.token_keys.extend(first_key..first_key + u64::from(end - start));
            start = end;
        }
        for segment in batch.cu_seqlens.windows(2) {
            batch.position_ids.extend(0..segment[1] - segment[0]);
        }
        // Those of pairs are there.
        batch.token_type_ids.resize(batch.ids.len(), 0);
        batch
    }
}
