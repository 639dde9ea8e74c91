//! Steps and batches of a choice.

use crate::config::defaults;
use crate::recipe::choose::Choice;
use crate::recipe::size::SHORT_LENGTH;

/// Rows of this length come at the end of a training that is long enough.
const LONG_LENGTH: usize = 512;

/// The share of the steps that they get.
const LONG_SHARE: f64 = 0.1;

/// Trainings of fewer tokens have no time for them.
const LEAST_TOKENS_FOR_LONG: f64 = 1e8;

/// The least share of the text beyond the first tokens of its documents that makes long rows worth it.
const LEAST_LONG_SHARE: f64 = 0.2;

/// Longer trainings learn from their steps what counting could have said; less text has too few words to
/// count.
const MOST_TOKENS_FOR_COUNTS: f64 = 1e8;
const LEAST_TEXT_FOR_COUNTS: f64 = 1e6;

/// How often a training looks at its validation loss and saves.
const LOOKS: u64 = 10;

/// How a choice is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// What is trained.
    pub choice: Choice,
    /// Longest row in tokens.
    pub max_seq_length: usize,
    /// Updates.
    pub steps: u64,
    /// Updates with short rows, before the others; all of them where no row is long.
    pub short_steps: u64,
    /// Short rows of a micro-batch.
    pub rows: usize,
    /// Micro-batches of an update.
    pub micro_batches: usize,
    /// Updates over which the number of micro-batches grows; 0 where there is one.
    pub ramp_steps: u64,
    /// Updates between two looks at the validation loss, and between two checkpoints.
    pub look_steps: u64,
    /// Share of the documents that is kept for validation.
    pub validation_fraction: f64,
}

impl Plan {
    /// Of a choice, with at most so many short rows (a power of two, 32 at least) at once, for a text of which
    /// this share of the tokens lies beyond the first [`SHORT_LENGTH`] of its document.
    pub fn of(choice: Choice, most_rows: usize, long_share: f64) -> Self {
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
            // Some 64,000 tokens tell losses apart that differ by a hundredth.
            validation_fraction: two_digits((65_536.0 / choice.text_tokens).clamp(0.001, 0.05)),
        }
    }

    /// Whether the last steps have longer rows.
    pub fn has_long_rows(&self) -> bool {
        self.short_steps < self.steps
    }

    /// Whether word embeddings begin with what the text says of neighbours.
    pub fn has_counted_embeddings(&self) -> bool {
        self.choice.tokens <= MOST_TOKENS_FOR_COUNTS && self.choice.text_tokens >= LEAST_TEXT_FOR_COUNTS
    }

    /// Tokens of an update.
    pub fn update_tokens(&self) -> u64 {
        (self.micro_batches * self.rows * SHORT_LENGTH) as u64
    }

    /// Tokens of all updates, with as many micro-batches as each has.
    pub fn tokens(&self) -> u64 {
        // The ramp rises from one to all in a straight line.
        let missing = self.ramp_steps as f64 * (self.micro_batches as f64 - 1.0) / 2.0;
        let micro_batches = self.steps as f64 * self.micro_batches as f64 - missing;
        (micro_batches * (self.rows * SHORT_LENGTH) as f64) as u64
    }

    /// Seconds of training, where long rows take so many times as long as short ones for each token.
    pub fn seconds(&self, long_factor: f64) -> f64 {
        let long = (self.steps - self.short_steps) as f64 * self.update_tokens() as f64;
        (self.tokens() as f64 + long * (long_factor - 1.0)) / self.choice.tokens_per_second
    }
}

/// `0.013` of 0.01327.
fn two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    // A division by a power of ten prints without noise, a product does not.
    (value / unit).round() / (1.0 / unit).round()
}
