//! The sizes of each step: phases of sequence length and the ramp of the batch size, as a pure function of
//! the step's number.

use std::ops::Range;

use config::{BatchSizeRamp, TrainingConfig};

/// The sizes of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepShape {
    /// Most tokens of a row (S).
    pub max_seq_length: usize,
    /// Rows of a micro-batch.
    pub rows_per_micro_batch: usize,
    /// Number of micro-batches of all processes together.
    pub micro_batches: usize,
}

impl StepShape {
    /// Most tokens of the step.
    pub fn tokens(&self) -> u64 {
        (self.max_seq_length * self.rows_per_micro_batch * self.micro_batches) as u64
    }
}

/// The part of `count` micro-batches that belongs to process `rank` of `size`: a block; the sizes of two
/// blocks differ by at most one.
pub fn share(count: usize, rank: usize, size: usize) -> Range<usize> {
    count * rank / size..count * (rank + 1) / size
}

/// The sizes of all steps of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlan {
    /// Phases, each with the number of the step after its last one.
    phases: Vec<(u64, StepShape)>,
    last: StepShape,
    ramp: BatchSizeRamp,
}

impl BatchPlan {
    /// A plan with the same sizes in every step.
    pub fn constant(shape: StepShape) -> Self {
        Self { phases: Vec::new(), last: shape, ramp: BatchSizeRamp::default() }
    }

    /// The plan of a configuration; `max_seq_length` is the length of rows outside of phases.
    pub fn new(training: &TrainingConfig, max_seq_length: usize) -> Self {
        let last = StepShape {
            max_seq_length,
            rows_per_micro_batch: training.rows_at_once(),
            micro_batches: training.gradient_accumulation_steps,
        };
        let phases = training.phases.iter().map(|phase| {
            let shape = StepShape {
                max_seq_length: phase.max_seq_length,
                rows_per_micro_batch: phase.per_device_train_batch_size.unwrap_or(last.rows_per_micro_batch),
                micro_batches: phase.gradient_accumulation_steps.unwrap_or(last.micro_batches),
            };
            (phase.until_step, shape)
        });
        Self { phases: phases.collect(), last, ramp: training.batch_size_ramp.clone() }
    }

    /// The sizes of the step after `steps_done`.
    pub fn at(&self, steps_done: u64) -> StepShape {
        let phase = self.phases.iter().find(|(until, _)| steps_done < *until);
        let shape = phase.map_or(self.last, |(_, shape)| *shape);
        let BatchSizeRamp { start_micro_batches, steps } = self.ramp;
        match shape.micro_batches.checked_sub(start_micro_batches) {
            Some(growth) if steps_done < steps => {
                let grown = (growth as u128 * u128::from(steps_done) / u128::from(steps)) as usize;
                StepShape { micro_batches: start_micro_batches + grown, ..shape }
            }
            _ => shape,
        }
    }

    /// The sizes of all phases, without the ramp.
    fn shapes(&self) -> impl Iterator<Item = &StepShape> {
        self.phases.iter().map(|(_, shape)| shape).chain([&self.last])
    }

    /// Most tokens of a micro-batch of any step.
    pub fn most_tokens_at_once(&self) -> usize {
        self.shapes().map(|shape| shape.rows_per_micro_batch * shape.max_seq_length).max().unwrap_or(0)
    }

    /// Returns true if every step has at least one row.
    pub fn has_rows(&self) -> bool {
        self.ramp.start_micro_batches > 0
            && self.shapes().all(|shape| shape.rows_per_micro_batch > 0 && shape.micro_batches > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TrainingPhase;

    #[test]
    fn phases_follow_each_other_and_the_ramp_grows_inside_them() {
        let first = TrainingPhase {
            per_device_train_batch_size: Some(32),
            gradient_accumulation_steps: Some(4),
            ..TrainingPhase::of_length(10, 128)
        };
        let training = TrainingConfig {
            per_device_train_batch_size: 8.into(),
            gradient_accumulation_steps: 16,
            phases: vec![first, TrainingPhase::of_length(20, 256)],
            batch_size_ramp: BatchSizeRamp { start_micro_batches: 2, steps: 14 },
            ..TrainingConfig::default()
        };
        let plan = BatchPlan::new(&training, 512);
        for (step, expected) in [
            (0, (128, 32, 2)),
            (6, (128, 32, 2)),
            (7, (128, 32, 3)),
            (9, (128, 32, 3)),
            (10, (256, 8, 12)),
            (13, (256, 8, 15)),
            (14, (256, 8, 16)),
            (19, (256, 8, 16)),
            (20, (512, 8, 16)),
            (u64::MAX, (512, 8, 16)),
        ] {
            let StepShape { max_seq_length, rows_per_micro_batch, micro_batches } = plan.at(step);
            assert_eq!((max_seq_length, rows_per_micro_batch, micro_batches), expected, "step {step}");
        }
        assert!(plan.has_rows());
        assert!(
            !BatchPlan::constant(StepShape { max_seq_length: 8, rows_per_micro_batch: 0, micro_batches: 1 })
                .has_rows()
        );
    }
}
