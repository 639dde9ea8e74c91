//! Scores of examples that have any number of labels each, and the choice of a label's threshold.
//!
//! Definitions are those of scikit-learn with `zero_division=0`: a score whose denominator is zero is 0. This
//! holds also for an example without labels for which none are predicted. If there is no label at all, F1 is
//! NaN.

use std::cmp::Ordering;

use crate::scores::ClassScore;
use crate::scores::measured::quotient;

/// Counts of labels over examples.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelTally {
    /// For each label, the numbers of examples: with the label and predicted to have it, with the label,
    /// predicted to have it.
    counts: Vec<[u64; 3]>,
    examples: u64,
    /// Number of examples whose predicted labels are exactly right.
    exact: u64,
    /// Sum of the F1 of each example's labels.
    f1_sum: f64,
}

impl LabelTally {
    /// An empty tally of `labels` labels.
    pub fn new(labels: usize) -> Self {
        Self { counts: vec![[0; 3]; labels], examples: 0, exact: 0, f1_sum: 0.0 }
    }

    /// Counts one example by the ids of its labels in the data and of its predicted labels. Each list is
    /// ascending, and its ids are below the number of labels.
    pub fn add(&mut self, gold: &[u32], predicted: &[u32]) {
        let mut right = 0;
        for &id in gold {
            self.counts[id as usize][1] += 1;
            if predicted.binary_search(&id).is_ok() {
                self.counts[id as usize][0] += 1;
                right += 1;
            }
        }
        for &id in predicted {
            self.counts[id as usize][2] += 1;
        }
        self.examples += 1;
        self.exact += u64::from(gold == predicted);
        self.f1_sum += f1([right, gold.len() as u64, predicted.len() as u64]);
    }

    /// F1 of all labels counted together; NaN if no example has a label and none is predicted.
    pub fn f1_micro(&self) -> f64 {
        if self.has_no_labels() {
            return f64::NAN;
        }
        f1(self.counts.iter().fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]))
    }

    /// The unweighted mean of F1 over all labels, including those that do not occur; NaN as for
    /// [`Self::f1_micro`].
    pub fn f1_macro(&self) -> f64 {
        if self.has_no_labels() {
            return f64::NAN;
        }
        let sum: f64 = self.counts.iter().copied().map(f1).sum();
        ratio(sum, self.counts.len() as f64)
    }

    /// The mean of F1 over the examples; NaN as for [`Self::f1_micro`].
    pub fn f1_samples(&self) -> f64 {
        if self.has_no_labels() {
            return f64::NAN;
        }
        ratio(self.f1_sum, self.examples as f64)
    }

    /// Share of examples whose predicted labels are exactly right: scikit-learn's `accuracy_score`.
    pub fn exact_match(&self) -> f64 {
        quotient(self.exact as f64, self.examples as f64)
    }

    /// Returns true if no label occurs, neither in the data nor predicted.
    fn has_no_labels(&self) -> bool {
        self.counts.iter().all(|[_, gold, predicted]| gold + predicted == 0)
    }

    /// Precision, recall and F1 of each label.
    pub fn per_label(&self) -> Vec<ClassScore> {
        self.counts.iter().map(label_score).collect()
    }
}

fn label_score(counts: &[u64; 3]) -> ClassScore {
    let [right, gold, predicted] = counts.map(|count| count as f64);
    ClassScore {
        precision: ratio(right, predicted),
        recall: ratio(right, gold),
        f1: f1(*counts),
        support: counts[1],
    }
}

fn f1([right, gold, predicted]: [u64; 3]) -> f64 {
    ratio(2.0 * right as f64, (gold + predicted) as f64)
}

fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { 0.0 } else { numerator / denominator }
}

/// Default threshold: a label is predicted if its probability is larger.
pub const DEFAULT_THRESHOLD: f64 = 0.5;

/// The threshold of a label with the highest F1 on `examples`: pairs of its probability and true if the
/// example has the label. Among thresholds with equal F1 it is the one nearest to 0.5, which is also the
/// threshold of a label that no example has.
///
/// It is the midpoint of two neighbouring probabilities, or 0.5 if that is between them.
pub fn best_threshold(examples: impl IntoIterator<Item = (f32, bool)>) -> f64 {
    let mut examples: Vec<(f32, bool)> = examples.into_iter().collect();
    examples.sort_by(|a, b| b.0.total_cmp(&a.0));
    let gold = examples.iter().filter(|(_, is_gold)| *is_gold).count() as u64;
    let mut right = 0;
    let mut best = (0.0, DEFAULT_THRESHOLD);
    for (place, &(probability, is_gold)) in examples.iter().enumerate() {
        right += u64::from(is_gold);
        let above = f64::from(probability);
        let below = f64::from(examples.get(place + 1).map_or(0.0, |next| next.0));
        if above <= below {
            continue;
        }
        let holds_half = (below..above).contains(&DEFAULT_THRESHOLD);
        let threshold = if holds_half { DEFAULT_THRESHOLD } else { f64::midpoint(above, below) };
        let found = f1([right, gold, place as u64 + 1]);
        let is_nearer = (threshold - DEFAULT_THRESHOLD).abs() < (best.1 - DEFAULT_THRESHOLD).abs();
        match found.total_cmp(&best.0) {
            Ordering::Greater => best = (found, threshold),
            Ordering::Equal if found > 0.0 && is_nearer => best.1 = threshold,
            _ => {}
        }
    }
    best.1
}

/// The ids of the labels whose probabilities are above their thresholds, ascending.
pub fn above(probabilities: &[f32], thresholds: &[f64]) -> Vec<u32> {
    let pairs = (0..).zip(probabilities.iter().zip(thresholds));
    pairs.filter(|(_, (p, threshold))| f64::from(**p) > **threshold).map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// `scripts/make_multi_label_golden.py` wrote the results of scikit-learn for random sets of labels.
    #[test]
    fn scores_are_those_of_scikit_learn() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/multi_label.json")).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        for case in cases {
            let mut tally = LabelTally::new(case["labels"].as_u64().unwrap() as usize);
            let pairs = case["gold"].as_array().unwrap().iter().zip(case["predicted"].as_array().unwrap());
            pairs.for_each(|(gold, predicted)| tally.add(&ids_of(gold), &ids_of(predicted)));
            assert_near("micro", tally.f1_micro(), &case["f1_micro"]);
            assert_near("macro", tally.f1_macro(), &case["f1_macro"]);
            assert_near("samples", tally.f1_samples(), &case["f1_samples"]);
            assert_near("exact match", tally.exact_match(), &case["exact_match"]);
            for (score, wanted) in tally.per_label().iter().zip(case["per_label"].as_array().unwrap()) {
                for (place, found) in
                    [score.precision, score.recall, score.f1, score.support as f64].iter().enumerate()
                {
                    assert_near("of a label", *found, &wanted[place]);
                }
            }
        }
        assert!(cases.len() >= 20);
    }

    #[test]
    fn without_a_label_nothing_is_measured_but_the_match() {
        let mut tally = LabelTally::new(2);
        tally.add(&[], &[]);
        assert!([tally.f1_micro(), tally.f1_macro(), tally.f1_samples()].iter().all(|score| score.is_nan()));
        assert_eq!(tally.exact_match().to_bits(), 1.0_f64.to_bits());
        tally.add(&[], &[1]);
        assert_eq!(tally.f1_micro().to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn a_threshold_separates_labels_if_possible_and_stays_at_a_half_if_possible() {
        let between = f64::midpoint(0.3f32.into(), 0.2f32.into());
        assert_eq!(best_threshold([(0.2, false), (0.4, true), (0.3, true)]).to_bits(), between.to_bits());
        for examples in [&[(0.9, true), (0.1, false)][..], &[(0.9, false), (0.1, false)], &[]] {
            assert_eq!(best_threshold(examples.iter().copied()).to_bits(), DEFAULT_THRESHOLD.to_bits());
        }
        // Predicting the label for all three gives an F1 of 0.8; a threshold above 0.6 gives 0.
        assert!(best_threshold([(0.7, false), (0.6, true), (0.6, true)]) < 0.6);
    }

    proptest! {
        #[test]
        fn no_other_threshold_is_better(examples in prop::collection::vec((0.0f32..1.0, any::<bool>()), 1..20), other in 0.0f64..1.0) {
            let best = f1_at(&examples, best_threshold(examples.iter().copied()));
            prop_assert!(f1_at(&examples, other) <= best + 1e-12 && f1_at(&examples, 0.5) <= best + 1e-12);
        }
    }

    /// F1 of a label with this threshold; 0 if no example has the label and none is predicted to.
    fn f1_at(examples: &[(f32, bool)], threshold: f64) -> f64 {
        let mut tally = LabelTally::new(1);
        for (probability, is_gold) in examples {
            tally.add(if *is_gold { &[0] } else { &[] }, &above(&[*probability], &[threshold]));
        }
        Some(tally.f1_micro()).filter(|score| !score.is_nan()).unwrap_or_default()
    }

    fn ids_of(value: &Value) -> Vec<u32> {
        value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    }

    fn assert_near(what: &str, found: f64, wanted: &Value) {
        let wanted = wanted.as_f64().unwrap();
        // If there is no label at all, scikit-learn warns and returns 0.
        let found = if found.is_nan() { 0.0 } else { found };
        assert!((found - wanted).abs() < 1e-12, "{what}: {found}, not {wanted}");
    }
}
