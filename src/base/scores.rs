//! Scores of predictions as pure functions: same inputs, same output, no model, no file.
//!
//! Nothing here adds up batches: callers count into a [`Confusion`] or collect values, and then ask for the
//! score once.

mod bootstrap;
mod classification;
mod correlation;
mod entities;
mod interval;
mod label_sets;
mod measured;
mod outcomes;
mod uniform;

pub use bootstrap::{Difference, Resampled, SeedsNeeded};
pub use classification::{ClassScore, Confusion};
pub use correlation::{pearson, spearman};
pub use entities::{Entity, EntityCounts, EntityTally, entities, euroeval_counts};
pub use interval::wilson_interval;
pub use label_sets::{DEFAULT_THRESHOLD, LabelTally, above, best_threshold};
pub use measured::{NOT_MEASURED, measured};
pub use outcomes::{Metric, Outcomes};

use serde::{Deserialize, Serialize};

/// Direction in which a score is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better, as for a loss.
    Lower,
    /// Higher is better, as for an accuracy.
    Higher,
}

impl Better {
    /// The direction of the score with this name: errors and losses are better if they are lower.
    pub fn of(score: &str) -> Self {
        let is_error =
            ["loss", "perplexity", "mse", "mae"].iter().any(|error| score == *error || ends_in(score, error));
        if is_error { Self::Lower } else { Self::Higher }
    }

    /// Returns true if a score is better than another; an equal score is not.
    pub fn is_better(self, score: f64, than: f64) -> bool {
        match self {
            Self::Lower => score < than,
            Self::Higher => score > than,
        }
    }

    /// The index of the best score, the first among equals. Scores that are `None` or NaN (not measured) are
    /// skipped.
    pub fn best_place(self, scores: impl IntoIterator<Item = Option<f64>>) -> Option<usize> {
        let scored = scores
            .into_iter()
            .enumerate()
            .filter_map(|(at, score)| Some((at, score.filter(|score| !score.is_nan())?)));
        let best = scored.reduce(|best, next| if self.is_better(next.1, best.1) { next } else { best });
        best.map(|(at, _)| at)
    }

    /// The index of the best score; `None` if several scores are equally good.
    pub fn only_best_place(self, scores: impl IntoIterator<Item = Option<f64>>) -> Option<usize> {
        let scores: Vec<Option<f64>> = scores.into_iter().collect();
        let at = self.best_place(scores.iter().copied())?;
        let best = scores[at]?;
        let known = scores.iter().flatten().filter(|score| !score.is_nan());
        let equal = known.filter(|&&score| !self.is_better(best, score)).count();
        (equal == 1).then_some(at)
    }
}

/// Returns true if `word` is the last word of a name, after an underscore.
fn ends_in(name: &str, word: &str) -> bool {
    name.strip_suffix(word).is_some_and(|rest| rest.ends_with('_'))
}

/// The arithmetic mean; NaN for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation (divisor n - 1); 0 for fewer than two values.
pub fn sample_std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Entropy in nats of the distribution that `counts` describe; NaN if all counts are 0.
///
/// This is the loss of the best model that ignores context: the baseline of a language model on the same
/// tokens.
pub fn unigram_entropy(counts: &[u64]) -> f64 {
    // Summed in u128: the counts of a corpus exceed 2^64 only in theory, but allowing for it costs nothing.
    let total: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    if total == 0 {
        return f64::NAN;
    }
    let sum: f64 = counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| {
            let share = count as f64 / total as f64;
            -share * share.ln()
        })
        .sum();
    // A single kind of token gives -0.0, which would be printed with its sign.
    sum.abs()
}

/// Perplexity of a mean loss in nats; infinite if the loss is too large for the exponential.
pub fn perplexity(loss: f64) -> f64 {
    loss.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    // numpy 2.4.6 (mean, std with ddof=1) and scipy 1.17.1 (stats.entropy).
    #[test]
    fn mean_deviation_and_entropy_agree_with_numpy_and_scipy() {
        let values = [0.1, 2.5, 3.3, 3.3, 4.8, 1.0, -2.0];
        assert!((mean(&values) - 1.857_142_857_142_857_1).abs() < 1e-12);
        assert!((sample_std(&values) - 2.307_131_800_061_960_3).abs() < 1e-12);
        assert!((unigram_entropy(&[5, 1, 0, 3, 11]) - 1.109_738_552_106_145_6).abs() < 1e-12);
    }

    #[test]
    fn errors_are_better_the_lower_they_are() {
        for (score, better) in [
            ("loss", Better::Lower),
            ("generator_loss", Better::Lower),
            ("valence_mse", Better::Lower),
            ("perplexity", Better::Lower),
            ("f1", Better::Higher),
            ("overall_f1", Better::Higher),
            ("floss", Better::Higher),
        ] {
            assert_eq!(Better::of(score), better, "{score}");
        }
    }

    #[test]
    fn scores_that_were_not_measured_are_never_the_best() {
        for better in [Better::Lower, Better::Higher] {
            assert_eq!(better.best_place([Some(f64::NAN), None, Some(0.5), Some(f64::NAN)]), Some(2));
            assert_eq!(better.best_place([Some(f64::NAN), None]), None);
        }
    }

    #[test]
    fn a_best_score_that_is_shared_is_nobodys() {
        for better in [Better::Lower, Better::Higher] {
            let scores = [Some(f64::NAN), None, Some(0.5), Some(0.25)];
            assert_eq!(better.only_best_place(scores), better.best_place(scores));
            assert_eq!(better.only_best_place([Some(0.5), None, Some(0.5)]), None);
            assert_eq!(better.only_best_place([Some(0.0), Some(-0.0)]), None);
            assert_eq!(better.only_best_place([None, Some(f64::NAN)]), None);
        }
        assert_eq!(Better::Higher.only_best_place([Some(0.25), Some(0.25), Some(0.5)]), Some(2));
    }

    #[test]
    fn degenerate_inputs_have_defined_results() {
        assert!(mean(&[]).is_nan());
        assert_eq!(sample_std(&[3.0]).to_bits(), 0.0_f64.to_bits());
        assert!(unigram_entropy(&[]).is_nan() && unigram_entropy(&[0, 0]).is_nan());
        assert_eq!(unigram_entropy(&[0, 7]).to_bits(), 0.0_f64.to_bits());
        assert!((unigram_entropy(&[u64::MAX, u64::MAX]) - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(perplexity(0.0).to_bits(), 1.0_f64.to_bits());
    }
}
