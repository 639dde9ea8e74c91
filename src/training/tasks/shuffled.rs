//! Training examples in a new order each epoch, split into steps and micro-batches.

use std::ops::Range;

use crate::tasks::run::Setting;
use base::rng::{Permutation, Purpose, Stream};
use data::batches::{Batch, Cursor, StepBatches, share};

/// The position in the shuffled examples at which the next step begins, and the sizes of steps.
#[derive(Debug, Clone)]
pub(super) struct Shuffled {
    cursor: Cursor,
    seed: u64,
    micro_rows: usize,
    rows_per_step: usize,
    /// Number of micro-batches of a step, and the range of those of this process.
    micro_batches: usize,
    own: Range<usize>,
}

impl Shuffled {
    /// Starts at the first epoch.
    pub(super) fn new(setting: &Setting<'_>) -> Self {
        let training = setting.training;
        let world = setting.machine.world;
        let micro_batches = training.gradient_accumulation_steps;
        Self {
            micro_batches,
            own: share(micro_batches, world.rank, world.size),
            cursor: Cursor::default(),
            seed: setting.seed,
            micro_rows: training.rows_at_once(),
            rows_per_step: training.rows_per_update(),
        }
    }

    /// Continues from `cursor`.
    pub(super) fn start(&mut self, cursor: Cursor) {
        self.cursor = cursor;
    }

    /// Number of rows of all updates of an epoch of `len` examples, as if the last update were full.
    pub(super) fn rows_per_epoch(&self, len: usize) -> u64 {
        len.next_multiple_of(self.rows_per_step) as u64
    }

    /// Returns the next step of `examples`. `batch` makes a micro-batch of some examples, given also the
    /// index in the step of the first of them. The last step of an epoch may have fewer examples than the
    /// others.
    pub(super) fn next_step<E>(
        &mut self,
        examples: &[E],
        batch: impl Fn(&[&E], u64) -> Batch,
    ) -> StepBatches {
        let epoch = self.cursor.epoch;
        let first = self.cursor.index as usize;
        let order = epoch_order(examples.len(), self.seed, epoch);
        let chosen: Vec<&E> =
            order.skip(first).take(self.rows_per_step).map(|index| &examples[index]).collect();
        let micro: Vec<Batch> = chosen
            .chunks(self.micro_rows)
            .enumerate()
            .filter(|(number, _)| self.own.contains(number))
            .map(|(number, rows)| batch(rows, (number * self.micro_rows) as u64))
            .collect();
        let next = first + chosen.len();
        self.cursor = if next >= examples.len() {
            Cursor { epoch: epoch + 1, ..Cursor::default() }
        } else {
            Cursor { epoch, index: next as u64, ..Cursor::default() }
        };
        StepBatches {
            cursor_after: self.cursor.clone(),
            epoch: self.cursor.epoch as f64 + self.cursor.index as f64 / examples.len() as f64,
            micro_batches: self.micro_batches,
            rows: chosen.len(),
            tokens: micro.iter().map(Batch::num_tokens).sum(),
            label_count: micro.iter().map(Batch::num_labels).sum(),
            micro,
        }
    }
}

/// The order in which `epoch` visits `len` examples, each exactly once.
fn epoch_order(len: usize, seed: u64, epoch: u64) -> impl Iterator<Item = usize> {
    let order = Permutation::new(Stream::new(seed, Purpose::Order, epoch), len as u64);
    (0..len as u64).map(move |index| order.at(index) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_visit_each_example_once_in_orders_of_their_own() {
        let orders: Vec<Vec<usize>> = (0..2).map(|epoch| epoch_order(50, 42, epoch).collect()).collect();
        assert_ne!(orders[0], orders[1]);
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..50).collect::<Vec<_>>());
        }
        assert_eq!(epoch_order(0, 42, 0).count(), 0);
    }
}
