//! Decides from the losses of the steps whether a run diverges. Its values are part of a checkpoint, and it
//! has no side effects.
//!
//! A step is bad when its loss or gradient norm is not finite, or its loss is far above those before it.
//! [`BAD_STEPS_MAX`] bad steps in a row mean divergence; `rollback.rs` acts on it.

use serde::{Deserialize, Serialize};

/// Number of consecutive bad steps from which on training counts as diverged.
pub const BAD_STEPS_MAX: u32 = 10;

/// Rollbacks without a good checkpoint in between, after which a run that diverges again ends with an error.
pub const ROLLBACKS_MAX: u32 = 3;

/// Number of good losses that are kept.
const REMEMBERED: usize = 128;

/// Number of losses needed to estimate how far they scatter.
const JUDGED_FROM: usize = 32;

/// With fewer than [`JUDGED_FROM`] losses, a loss is a spike if it exceeds the largest of them by this
/// factor.
const YOUNG_FACTOR: f64 = 4.0;

/// Standard deviation of a normal distribution, divided by its median absolute deviation.
const DEVIATIONS_OF_MEDIAN: f64 = 1.4826;

/// A loss below this factor times the median is never a spike, however little the losses scatter.
const LEAST_FACTOR: f64 = 1.5;

/// History of losses and rollbacks of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// Losses of the latest good steps of batches of one shape, oldest first.
    losses: Vec<f64>,
    /// Bad steps since the last good one.
    bad_steps: u32,
    /// Total number of rollbacks.
    rollbacks: u64,
    /// Rollbacks since the last checkpoint after [`Self::diverged_at`].
    rollbacks_in_a_row: u32,
    /// The last step of the latest divergence; 0 if there was none.
    diverged_at: u64,
}

/// Judgement of one step by its loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// The loss is usual.
    Good,
    /// The loss or gradient norm is not finite; the step was skipped.
    NotFinite,
    /// The loss exceeds this limit.
    Spike(f64),
}

impl Divergence {
    /// Records the mean loss of a step (`None` if the step was skipped because a value was not finite) and
    /// judges it. A spike is a loss more than `threshold` robust standard deviations above the median of the
    /// losses before it; with threshold 0 there are no spikes.
    pub fn observe(&mut self, loss: Option<f64>, threshold: f64) -> Verdict {
        let limit = self.limit(threshold);
        let verdict = match loss {
            None => Verdict::NotFinite,
            Some(loss) if loss > limit => Verdict::Spike(limit),
            Some(_) => Verdict::Good,
        };
        match (verdict, loss) {
            (Verdict::Good, Some(loss)) => {
                self.bad_steps = 0;
                if threshold > 0.0 {
                    let surplus = (self.losses.len() + 1).saturating_sub(REMEMBERED);
                    self.losses.drain(..surplus);
                    self.losses.push(loss);
                }
            }
            _ => self.bad_steps += 1,
        }
        verdict
    }

    /// The loss above which a step is a spike.
    fn limit(&self, threshold: f64) -> f64 {
        if threshold <= 0.0 || self.losses.is_empty() {
            return f64::INFINITY;
        }
        if self.losses.len() < JUDGED_FROM {
            return YOUNG_FACTOR * self.losses.iter().copied().fold(0.0, f64::max);
        }
        let center = median(self.losses.clone());
        let scatter = median(self.losses.iter().map(|loss| (loss - center).abs()).collect());
        (center + threshold * DEVIATIONS_OF_MEDIAN * scatter).max(LEAST_FACTOR * center)
    }

    /// Clears the loss history: batches of another shape may have other losses.
    pub fn forget_losses(&mut self) {
        self.losses.clear();
    }

    /// Bad steps since the last good one.
    pub fn bad_steps(&self) -> u32 {
        self.bad_steps
    }

    /// Returns true if the number of consecutive bad steps means divergence.
    pub fn has_diverged(&self) -> bool {
        self.bad_steps >= BAD_STEPS_MAX
    }

    /// Total number of rollbacks.
    pub fn rollbacks(&self) -> u64 {
        self.rollbacks
    }

    /// Returns true if another rollback is allowed.
    pub fn may_roll_back(&self) -> bool {
        self.rollbacks_in_a_row < ROLLBACKS_MAX
    }

    /// The last step before the bad steps, where `step` is the last one done.
    pub fn last_good_step(&self, step: u64) -> u64 {
        step.saturating_sub(u64::from(self.bad_steps))
    }

    /// The history after a rollback from step `step` to a checkpoint with the history `then`.
    #[must_use]
    pub fn rolled_back(&self, then: &Self, step: u64) -> Self {
        Self {
            losses: then.losses.clone(),
            bad_steps: 0,
            rollbacks: self.rollbacks + 1,
            rollbacks_in_a_row: self.rollbacks_in_a_row + 1,
            diverged_at: self.diverged_at.max(step),
        }
    }

    /// Called when a checkpoint is due after the good step `step`: if it is past the latest divergence, the
    /// count of rollbacks restarts.
    pub fn checkpoint_due(&mut self, step: u64) {
        if step > self.diverged_at {
            self.rollbacks_in_a_row = 0;
        }
    }
}

/// The median of a list of at least one value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { 0.5 * (values[half - 1] + values[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Purpose, Stream};

    const THRESHOLD: f64 = 10.0;

    /// The verdicts on `losses`; a value that is not finite stands for a skipped step.
    fn verdicts(divergence: &mut Divergence, losses: impl IntoIterator<Item = f64>) -> Vec<Verdict> {
        losses
            .into_iter()
            .map(|loss| divergence.observe(loss.is_finite().then_some(loss), THRESHOLD))
            .collect()
    }

    #[test]
    fn losses_that_fall_and_scatter_are_good() {
        let stream = Stream::new(5, Purpose::Test, 0);
        let mut divergence = Divergence::default();
        // From 9 to 2 nats in 2,000 steps, with noise of 0.1.
        let losses =
            (0..2_000).map(|step| 2.0 + 7.0 * (-(step as f64) / 300.0).exp() + 0.1 * stream.normal(step));
        let found = verdicts(&mut divergence, losses);
        assert!(found.iter().all(|verdict| *verdict == Verdict::Good));
        // Classification of small batches: most losses are near 0, some are not.
        let mut divergence = Divergence::default();
        for step in 0..20_000 {
            let loss = 0.02 / stream.uniform(step + 5_000).max(0.01);
            divergence.observe(Some(loss), THRESHOLD);
            assert!(!divergence.has_diverged(), "step {step}");
        }
    }

    #[test]
    fn ten_in_a_row_are_too_many_and_a_good_one_forgives_nine() {
        let mut divergence = Divergence::default();
        verdicts(&mut divergence, [3.0; 40]);
        for bad in [f64::NAN, f64::INFINITY, 4.6, 1e30] {
            verdicts(&mut divergence, [bad; 9]);
            assert!(!divergence.has_diverged() && divergence.bad_steps() == 9);
            verdicts(&mut divergence, [3.0]);
            assert_eq!(divergence.bad_steps(), 0);
        }
        assert_eq!(
            verdicts(&mut divergence, [4.6]),
            [Verdict::Spike(4.5)],
            "half as much again as the median"
        );
        verdicts(&mut divergence, [f64::NAN; 9]);
        assert!(divergence.has_diverged());
        assert_eq!(divergence.last_good_step(100), 90);
    }

    #[test]
    fn a_run_that_explodes_from_the_start_is_detected() {
        let mut divergence = Divergence::default();
        let exploding = (0..12).map(|step| 8.0 * 30f64.powi(step));
        assert_eq!(verdicts(&mut divergence, exploding)[1], Verdict::Spike(32.0));
        assert!(divergence.has_diverged());
    }

    #[test]
    fn no_threshold_knows_no_spike_but_what_is_not_finite() {
        let mut divergence = Divergence::default();
        for loss in [1.0, 1e9, 2.0] {
            assert_eq!(divergence.observe(Some(loss), 0.0), Verdict::Good);
        }
        assert_eq!(divergence.observe(None, 0.0), Verdict::NotFinite);
        assert_eq!(divergence.losses, [0.0; 0]);
    }

    #[test]
    fn three_rollbacks_in_a_row_are_all_and_a_checkpoint_beyond_the_trouble_forgives_them() {
        let then = Divergence::default();
        let mut now = Divergence { bad_steps: 10, ..Divergence::default() };
        for _ in 0..3 {
            assert!(now.may_roll_back());
            now = Divergence { bad_steps: 10, ..now.rolled_back(&then, 57) };
        }
        assert!(!now.may_roll_back());
        now.checkpoint_due(57);
        assert!(!now.may_roll_back());
        now.checkpoint_due(58);
        assert!(now.may_roll_back());
        assert_eq!(now.rollbacks(), 3);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut divergence = Divergence::default();
        verdicts(&mut divergence, (1_000..2_000).map(f64::from));
        assert_eq!((divergence.losses.len(), divergence.losses[0]), (REMEMBERED, 1_872.0));
    }
}
