//! What the steps of a run are made of, in all.

use crate::batches::BatchPlan;
use crate::config::TrainingConfig;

/// Micro-batches of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Rows of a micro-batch (B).
    pub rows: usize,
    /// Tokens of a row.
    pub length: usize,
    /// Micro-batches of this size in the whole run.
    pub micro_batches: u64,
    /// Updates that they belong to.
    pub updates: u64,
}

impl Part {
    /// Tokens of a micro-batch (T).
    pub fn tokens_at_once(&self) -> u64 {
        (self.rows * self.length) as u64
    }
}

/// All micro-batches of a run, by their sizes in the order of their first step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// One for each size.
    pub parts: Vec<Part>,
}

impl Work {
    /// Of `steps` updates whose rows are full; `max_seq_length` holds where no phase says otherwise.
    pub fn new(training: &TrainingConfig, max_seq_length: usize, steps: u64) -> Self {
        let plan = BatchPlan::new(training, max_seq_length);
        let mut parts: Vec<Part> = Vec::new();
        for step in 0..steps {
            let shape = plan.at(step);
            let (rows, length) = (shape.rows_per_micro_batch, shape.max_seq_length);
            let index = parts.iter().position(|part| (part.rows, part.length) == (rows, length));
            let index = index.unwrap_or_else(|| {
                parts.push(Part { rows, length, micro_batches: 0, updates: 0 });
                parts.len() - 1
            });
            parts[index].micro_batches += shape.micro_batches as u64;
            parts[index].updates += 1;
        }
        Self { parts }
    }

    /// Tokens in all.
    pub fn tokens(&self) -> u64 {
        self.parts.iter().map(|part| part.micro_batches * part.tokens_at_once()).sum()
    }
}
