//! Rules for an end before the last step: no improvement for a number of evaluations, or a time limit.
//!
//! Both are pure functions: the caller measures scores and seconds.

use serde::{Deserialize, Deserializer, Serialize};

use base::scores::Better;

/// The best score so far and the number of evaluations since; part of the state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestScore {
    better: Better,
    #[serde(deserialize_with = "required")]
    best: Option<(u64, f64)>,
    evaluations_since: u32,
}

impl BestScore {
    /// A tracker without a score.
    pub fn new(better: Better) -> Self {
        Self { better, best: None, evaluations_since: 0 }
    }

    /// Records the score of an evaluation after `step` updates; returns true if it is the best so far.
    ///
    /// An equal score is no improvement, and neither is one that is not finite, since JSON could not store
    /// it. A score that was not measured (NaN) is ignored. The same step again (after a resume) is not
    /// counted twice.
    pub fn observe(&mut self, step: u64, score: f64) -> bool {
        if score.is_nan() {
            return false;
        }
        let improved = match self.best {
            _ if !score.is_finite() => false,
            None => true,
            Some((_, best)) => self.better.is_better(score, best),
        };
        if improved {
            self.best = Some((step, score));
            self.evaluations_since = 0;
        } else if self.step() != Some(step) {
            self.evaluations_since += 1;
        }
        improved
    }

    /// The step of the best score.
    pub fn step(&self) -> Option<u64> {
        self.best.map(|(step, _)| step)
    }

    /// The best score.
    pub fn score(&self) -> Option<f64> {
        self.best.map(|(_, score)| score)
    }

    /// Returns true if `patience` evaluations in a row brought no improvement; never without a patience.
    pub fn out_of_patience(&self, patience: Option<u32>) -> bool {
        patience.is_some_and(|patience| self.evaluations_since >= patience)
    }
}

/// A value that may be null but not missing: by default, serde reads a missing `Option` as `None`.
pub(in crate::train) fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Returns true if the time budget has no room for one more step of `step_seconds`.
///
/// `elapsed_seconds` covers all sittings of the run; without a budget the result is false.
pub fn out_of_time(elapsed_seconds: f64, step_seconds: f64, budget_seconds: Option<f64>) -> bool {
    budget_seconds.is_some_and(|budget| elapsed_seconds + step_seconds > budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_counts_evaluations_without_improvement() {
        let mut best = BestScore::new(Better::Lower);
        assert!(!best.out_of_patience(Some(2)));
        assert!(best.observe(100, 3.0));
        assert!(best.observe(200, 2.5));
        assert!(!best.observe(300, 2.5));
        assert!(!best.out_of_patience(Some(2)));
        assert!(!best.observe(350, f64::NAN));
        assert!(!best.out_of_patience(Some(2)), "what was not measured is no reason to stop");
        assert!(!best.observe(400, f64::INFINITY));
        assert!(best.out_of_patience(Some(2)));
        assert!(!best.observe(450, f64::NEG_INFINITY), "JSON has no such number");
        assert!(!best.out_of_patience(None));
        assert_eq!((best.step(), best.score()), (Some(200), Some(2.5)));
        assert!(best.observe(500, 2.0));
        assert!(!best.out_of_patience(Some(2)));
    }

    #[test]
    fn higher_is_better_for_an_accuracy_and_the_state_survives_json() {
        let mut best = BestScore::new(Better::Higher);
        assert!(best.observe(1, 0.5));
        assert!(best.observe(2, 0.6));
        assert!(!best.observe(2, 0.6));
        let text = serde_json::to_string(&best).unwrap();
        assert_eq!(serde_json::from_str::<BestScore>(&text).unwrap(), best);
        assert!(!best.out_of_patience(Some(1)), "the same step twice is one evaluation");
    }

    #[test]
    fn a_step_that_would_pass_the_budget_is_not_begun() {
        assert!(!out_of_time(50.0, 9.0, Some(60.0)));
        assert!(out_of_time(50.0, 11.0, Some(60.0)));
        assert!(!out_of_time(1e9, 1.0, None));
    }
}
