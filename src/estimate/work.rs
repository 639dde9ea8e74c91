//! The total work of a run: its micro-batches by size.

use crate::batches::BatchPlan;
use crate::config::TrainingConfig;

/// Micro-batches of one size and objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Rows per micro-batch (B).
    pub rows: usize,
    /// Tokens per row.
    pub length: usize,
    /// True if each token is predicted from those before it.
    pub is_causal: bool,
    /// Number of micro-batches of this size in the whole run.
    pub micro_batches: u64,
    /// Number of updates that they belong to.
    pub updates: u64,
}

impl Part {
    /// Tokens per micro-batch (T).
    pub fn tokens_at_once(&self) -> u64 {
        (self.rows * self.length) as u64
    }
}

/// All micro-batches of a run, grouped by size and objective, in the order of their first step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// One part for each size and objective.
    pub parts: Vec<Part>,
}

impl Work {
    /// The work of `steps` updates with full rows, which have `max_seq_length` tokens unless a phase sets
    /// another length.
    pub fn new(training: &TrainingConfig, max_seq_length: usize, steps: u64) -> Self {
        let plan = BatchPlan::new(training, max_seq_length);
        let mut parts: Vec<Part> = Vec::new();
        for step in 0..steps {
            let shape = plan.at(step);
            let rows = shape.rows_per_micro_batch;
            let length = shape.max_seq_length;
            let is_causal = step < training.causal_steps();
            let index = parts
                .iter()
                .position(|part| (part.rows, part.length, part.is_causal) == (rows, length, is_causal));
            let index = index.unwrap_or_else(|| {
                parts.push(Part { rows, length, is_causal, micro_batches: 0, updates: 0 });
                parts.len() - 1
            });
            parts[index].micro_batches += shape.micro_batches as u64;
            parts[index].updates += 1;
        }
        Self { parts }
    }

    /// Number of tokens in the whole run.
    pub fn tokens(&self) -> u64 {
        self.parts.iter().map(|part| part.micro_batches * part.tokens_at_once()).sum()
    }
}
