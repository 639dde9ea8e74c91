//! Computes the steps and batches of a chosen model.

use crate::recipe::choose::Choice;
use crate::recipe::size::SHORT_LENGTH;
use config::defaults;

/// Row length in tokens for the last steps, if the training is long enough.
const LONG_LENGTH: usize = 512;

/// Share of the steps with long rows.
const LONG_SHARE: f64 = 0.1;

/// Least number of training tokens for long rows: shorter trainings have no time for them.
const LEAST_TOKENS_FOR_LONG: f64 = 1e8;

/// Least share of the text after the first [`SHORT_LENGTH`] tokens of each document that makes long rows
/// worth it.
const LEAST_LONG_SHARE: f64 = 0.2;

/// Most training tokens for embeddings that start from co-occurrence counts: a longer training learns as much
/// itself.
const MOST_TOKENS_FOR_COUNTS: f64 = 1e8;

/// Least tokens of text for co-occurrence counts: in less text most words are too rare.
const LEAST_TEXT_FOR_COUNTS: f64 = 1e6;

/// Largest share of the documents that are held out.
pub(super) const MOST_VALIDATION: f64 = 0.05;

/// Number of evaluations, and of checkpoints, in a training.
const LOOKS: u64 = 10;

/// Steps, batches and row lengths for a chosen model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The chosen model.
    pub choice: Choice,
    /// Longest row in tokens.
    pub max_seq_length: usize,
    /// Number of updates.
    pub steps: u64,
    /// Number of updates with short rows, which come first; equal to `steps` if there are no long rows.
    pub short_steps: u64,
    /// Number of short rows in a micro-batch.
    pub rows: usize,
    /// Number of micro-batches of an update.
    pub micro_batches: usize,
    /// Number of updates over which the number of micro-batches grows from 1; 0 if there is one micro-batch.
    pub ramp_steps: u64,
    /// Number of updates between two evaluations, and between two checkpoints.
    pub look_steps: u64,
    /// Share of the documents that is kept for validation.
    pub validation_fraction: f64,
}

impl Plan {
    /// Returns the plan for a chosen model. `most_rows` is the largest number of short rows in a micro-batch
    /// (a power of two, at least 32), `long_share` the share of the text after the first [`SHORT_LENGTH`]
    /// tokens of each document.
    pub fn new(choice: Choice, most_rows: usize, long_share: f64) -> Self {
        let all_rows = defaults::update_rows(choice.tokens, SHORT_LENGTH);
        let rows = all_rows.min(most_rows);
        let micro_batches = all_rows / rows;
        let steps = ((choice.tokens / (all_rows * SHORT_LENGTH) as f64) as u64).max(LOOKS);
        let is_long = choice.tokens >= LEAST_TOKENS_FOR_LONG && long_share >= LEAST_LONG_SHARE;
        Self {
            choice,
            max_seq_length: if is_long { LONG_LENGTH } else { SHORT_LENGTH },
            steps,
            short_steps: if is_long { steps - (steps as f64 * LONG_SHARE) as u64 } else { steps },
            rows,
            micro_batches,
            ramp_steps: if micro_batches > 1 { steps / 20 } else { 0 },
            look_steps: steps / LOOKS,
            // About 64,000 tokens are enough to see a difference of 0.01 in the loss.
            validation_fraction: two_digits((65_536.0 / choice.text_tokens).clamp(0.001, MOST_VALIDATION)),
        }
    }

    /// True if the last steps have long rows.
    pub fn has_long_rows(&self) -> bool {
        self.short_steps < self.steps
    }

    /// True if word embeddings start from co-occurrence counts of the text.
    pub fn has_counted_embeddings(&self) -> bool {
        self.choice.tokens <= MOST_TOKENS_FOR_COUNTS && self.choice.text_tokens >= LEAST_TEXT_FOR_COUNTS
    }

    /// Number of tokens of an update with all its micro-batches.
    pub fn update_tokens(&self) -> u64 {
        (self.micro_batches * self.rows * SHORT_LENGTH) as u64
    }

    /// Number of tokens of all updates, with fewer micro-batches during the ramp.
    pub fn tokens(&self) -> u64 {
        // The ramp is linear, from one micro-batch to all.
        let missing = self.ramp_steps as f64 * (self.micro_batches as f64 - 1.0) / 2.0;
        let micro_batches = self.steps as f64 * self.micro_batches as f64 - missing;
        (micro_batches * (self.rows * SHORT_LENGTH) as f64) as u64
    }

    /// Training time in seconds, if a token of a long row takes `long_factor` times as long as one of a short
    /// row.
    pub fn seconds(&self, long_factor: f64) -> f64 {
        let long = (self.steps - self.short_steps) as f64 * self.update_tokens() as f64;
        (self.tokens() as f64 + long * (long_factor - 1.0)) / self.choice.tokens_per_second
    }
}

/// Rounds to two significant digits, such as 0.01327 to 0.013.
fn two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    // A division by a power of ten prints without noise, a product does not.
    (value / unit).round() / (1.0 / unit).round()
}
