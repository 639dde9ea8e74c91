//! What an evaluation came to, by name.

use crate::tasks::Loss;
use crate::tasks::Term;
use crate::tasks::run::Scores;
use crate::tasks::trained::learnt_nothing;

/// The names of [`scores`].
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

/// The scores of the losses that [`super::ReplacedTokenDetection`] gives, summed over all batches.
pub fn scores(terms: &[Term], losses: &[Loss]) -> Scores {
    let [generator, discriminator, told, replaced, drawn] = losses else { return Scores::new() };
    let loss = terms[0].weight * generator.mean() + terms[1].weight * discriminator.mean();
    let values = [
        loss,
        generator.mean(),
        generator.accuracy(),
        discriminator.mean(),
        discriminator.accuracy(),
        binary_entropy(replaced.count, discriminator.count),
        told.accuracy(),
        replaced.accuracy(),
        drawn.accuracy(),
    ];
    NAMES.iter().zip(values).map(|(name, value)| ((*name).to_string(), value)).collect()
}

/// The warning of a discriminator of which the score `name` has this value, where it finds no replaced token.
pub fn finds_nothing(name: &str, value: f64) -> Option<String> {
    (name == "replaced_recall" && value == 0.0)
        .then(|| learnt_nothing("the discriminator finds none of the replaced tokens"))
}

/// The loss of knowing only how often a token is replaced, in nats; NaN without tokens.
fn binary_entropy(ones: usize, all: usize) -> f64 {
    if all == 0 {
        return f64::NAN;
    }
    let term = |count: usize| {
        let share = count as f64 / all as f64;
        if count == 0 { 0.0 } else { -share * share.ln() }
    };
    term(ones) + term(all.saturating_sub(ones))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_shares_and_means_and_the_loss_is_weighted() {
        let terms = [Term { name: "generator", weight: 1.0 }, Term { name: "discriminator", weight: 50.0 }];
        let loss = |sum, count, correct| Loss { sum, count, correct };
        let losses = [loss(12.0, 4, 1), loss(2.5, 10, 8), loss(0.0, 5, 2), loss(0.0, 3, 2), loss(0.0, 4, 1)];
        let scores = scores(&terms, &losses);
        let value = |name: &str| scores.iter().find(|(known, _)| known == name).unwrap().1;
        assert!((value("loss") - 15.5).abs() < 1e-12);
        assert!((value("replaced_precision") - 0.4).abs() < 1e-12);
        assert!((value("replaced_recall") - 2.0 / 3.0).abs() < 1e-12);
        assert!((value("sampled_equal_share") - 0.25).abs() < 1e-12);
        let baseline = -(0.3 * 0.3f64.ln() + 0.7 * 0.7f64.ln());
        assert!((value("discriminator_baseline_loss") - baseline).abs() < 1e-12);
        assert!(finds_nothing("replaced_recall", 0.0).is_some_and(|text| text.contains("replaced tokens")));
        assert!(
            finds_nothing("replaced_recall", 0.01).or(finds_nothing("replaced_precision", 0.0)).is_none()
        );
        assert!(finds_nothing("replaced_recall", f64::NAN).is_none(), "none was replaced");
        assert!(binary_entropy(0, 10).abs() < 1e-12 && binary_entropy(0, 0).is_nan());
    }
}
