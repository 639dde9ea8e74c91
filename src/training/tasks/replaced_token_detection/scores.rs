//! The scores of an evaluation, by name.

use crate::tasks::run::Scores;
use crate::tasks::trained::learnt_nothing;
use crate::tasks::{Loss, Term};

/// Names of the scores that [`scores`] returns.
pub const NAMES: [&str; 9] = [
    "loss",
    "generator_loss",
    "generator_accuracy",
    "discriminator_loss",
    "discriminator_accuracy",
    "discriminator_baseline_loss",
    "replaced_precision",
    "replaced_recall",
    "sampled_equal_share",
];

/// Turns the losses that [`super::ReplacedTokenDetection`] returns, summed over all batches, into scores.
pub fn scores(terms: &[Term], losses: &[Loss]) -> Scores {
    let [generator, discriminator, predicted, replaced, drawn] = losses else { return Scores::new() };
    let loss = terms[0].weight * generator.mean() + terms[1].weight * discriminator.mean();
    let values = [
        loss,
        generator.mean(),
        generator.accuracy(),
        discriminator.mean(),
        discriminator.accuracy(),
        binary_entropy(replaced.count, discriminator.count),
        predicted.accuracy(),
        replaced.accuracy(),
        drawn.accuracy(),
    ];
    NAMES.iter().zip(values).map(|(name, value)| ((*name).to_string(), value)).collect()
}

/// Warning for a discriminator that finds none of the replaced tokens, if the score `name` with this value
/// shows that.
pub fn finds_nothing(name: &str, value: f64) -> Option<String> {
    (name == "replaced_recall" && value == 0.0)
        .then(|| learnt_nothing("the discriminator finds none of the replaced tokens"))
}

/// Loss of knowing only how often a token is replaced, in nats; NaN without tokens.
fn binary_entropy(ones: usize, all: usize) -> f64 {
    if all == 0 {
        return f64::NAN;
    }
    entropy_term(ones, all) + entropy_term(all.saturating_sub(ones), all)
}

/// `-p ln p` for the share `p` of `count` in `all`.
fn entropy_term(count: usize, all: usize) -> f64 {
    let share = count as f64 / all as f64;
    if count == 0 { 0.0 } else { -share * share.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_shares_and_means_and_the_loss_is_weighted() {
        let terms = [Term { name: "generator", weight: 1.0 }, Term { name: "discriminator", weight: 50.0 }];
        let losses = [(12.0, 4, 1), (2.5, 10, 8), (0.0, 5, 2), (0.0, 3, 2), (0.0, 4, 1)];
        let losses = losses.map(|(sum, count, correct)| Loss { sum, count, correct });
        let scores = scores(&terms, &losses);
        let baseline = -(0.3 * 0.3f64.ln() + 0.7 * 0.7f64.ln());
        for (name, expected) in [
            ("loss", 15.5),
            ("replaced_precision", 0.4),
            ("replaced_recall", 2.0 / 3.0),
            ("sampled_equal_share", 0.25),
            ("discriminator_baseline_loss", baseline),
        ] {
            let (_, value) = scores.iter().find(|(known, _)| known == name).unwrap();
            assert!((value - expected).abs() < 1e-12, "{name}: {value}");
        }
        assert!(finds_nothing("replaced_recall", 0.0).is_some_and(|text| text.contains("replaced tokens")));
        assert!(
            finds_nothing("replaced_recall", 0.01).or(finds_nothing("replaced_precision", 0.0)).is_none()
        );
        assert!(finds_nothing("replaced_recall", f64::NAN).is_none(), "none was replaced");
        assert!(binary_entropy(0, 10).abs() < 1e-12 && binary_entropy(0, 0).is_nan());
    }
}
