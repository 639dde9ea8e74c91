//! Scores of a classifier, computed from its confusion matrix.
//!
//! Definitions are scikit-learn's with `zero_division=0`: the precision of a class that is never predicted is
//! 0. A score without examples is NaN, which means "not measured".

use std::collections::BTreeMap;

use crate::scores::measured::quotient;

/// Precision, recall and F1 of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassScore {
    /// Share of the predictions of this class that are right.
    pub precision: f64,
    /// Share of the examples of this class that were found.
    pub recall: f64,
    /// Harmonic mean of both.
    pub f1: f64,
    /// Number of examples of this class.
    pub support: u64,
}

/// Counts of (true class, predicted class). Only pairs that occur are stored, so that many classes take
/// little memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    counts: BTreeMap<(u32, u32), u64>,
    /// Number of examples of each class.
    truths: Vec<u64>,
    /// Number of predictions of each class.
    predictions: Vec<u64>,
}

impl Confusion {
    /// An empty matrix of `classes` classes.
    pub fn new(classes: usize) -> Self {
        Self { counts: BTreeMap::new(), truths: vec![0; classes], predictions: vec![0; classes] }
    }

    /// Counts two equally long lists of class ids, which must be below `classes`.
    pub fn of(classes: usize, truth: &[u32], predicted: &[u32]) -> Self {
        assert_eq!(truth.len(), predicted.len(), "each example has one true and one predicted class");
        let mut confusion = Self::new(classes);
        for (&truth, &predicted) in truth.iter().zip(predicted) {
            confusion.add(truth, predicted);
        }
        confusion
    }

    /// Counts one example; both class ids must be below the number of classes.
    pub fn add(&mut self, truth: u32, predicted: u32) {
        let classes = self.classes();
        assert!(
            (truth as usize) < classes && (predicted as usize) < classes,
            "class ids lie below the number of classes"
        );
        *self.counts.entry((truth, predicted)).or_insert(0) += 1;
        self.truths[truth as usize] += 1;
        self.predictions[predicted as usize] += 1;
    }

    /// Number of classes, including those that do not occur.
    pub fn classes(&self) -> usize {
        self.truths.len()
    }

    /// Number of examples of class `truth` that were predicted as `predicted`.
    pub fn count(&self, truth: usize, predicted: usize) -> u64 {
        self.counts.get(&(truth as u32, predicted as u32)).copied().unwrap_or(0)
    }

    /// The wrong predictions as (true class, predicted class, count), sorted by the two classes.
    pub fn mistakes(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        let wrong = self.counts.iter().filter(|((truth, predicted), _)| truth != predicted);
        wrong.map(|((truth, predicted), count)| (*truth as usize, *predicted as usize, *count))
    }

    /// Number of examples counted.
    pub fn total(&self) -> u64 {
        self.truths.iter().sum()
    }

    /// Share of right predictions; NaN without examples.
    pub fn accuracy(&self) -> f64 {
        quotient(self.right() as f64, self.total() as f64)
    }

    /// Precision, recall and F1 of each class.
    pub fn per_class(&self) -> Vec<ClassScore> {
        (0..self.classes())
            .map(|class| {
                let right = self.count(class, class) as f64;
                let support = self.truths[class];
                let predicted = self.predictions[class];
                ClassScore {
                    precision: ratio(right, predicted as f64),
                    recall: ratio(right, support as f64),
                    f1: ratio(2.0 * right, (support + predicted) as f64),
                    support,
                }
            })
            .collect()
    }

    /// The unweighted mean of F1 over the classes that occur as truth or prediction; NaN without examples.
    pub fn macro_f1(&self) -> f64 {
        // scikit-learn takes the labels from the data: a class that neither occurs nor is predicted does not
        // count.
        let scores: Vec<f64> = self
            .per_class()
            .iter()
            .zip(&self.predictions)
            .filter(|(score, predicted)| score.support + **predicted > 0)
            .map(|(score, _)| score.f1)
            .collect();
        quotient(scores.iter().sum(), scores.len() as f64)
    }

    /// The Matthews correlation coefficient for any number of classes (Gorodkin 2004). As in scikit-learn, it
    /// is 0 if all predictions are the same. It is NaN if all examples are of one class: there is nothing
    /// that predictions could correlate with.
    pub fn matthews(&self) -> f64 {
        if self.truths.iter().filter(|&&count| count > 0).count() < 2 {
            return f64::NAN;
        }
        let total = self.total() as f64;
        let right = self.right() as f64;
        let mut product = 0.0;
        let mut truths_squared = 0.0;
        let mut predictions_squared = 0.0;
        for (&truths, &predictions) in self.truths.iter().zip(&self.predictions) {
            let truths = truths as f64;
            let predictions = predictions as f64;
            product += truths * predictions;
            truths_squared += truths * truths;
            predictions_squared += predictions * predictions;
        }
        let spread = (total * total - predictions_squared) * (total * total - truths_squared);
        ratio(right * total - product, spread.sqrt())
    }

    /// Number of right predictions.
    fn right(&self) -> u64 {
        (0..self.classes()).map(|class| self.count(class, class)).sum()
    }
}

fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { 0.0 } else { numerator / denominator }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-12, "{left} {right}");
    }

    // All expected values of these tests: scikit-learn 1.9.1, zero_division=0.
    #[test]
    fn four_classes_agree_with_scikit_learn() {
        let truth = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3];
        let predicted = [0, 1, 0, 0, 1, 1, 2, 2, 2, 0, 2, 1, 0, 2];
        let confusion = Confusion::of(4, &truth, &predicted);
        let rows = [0, 1, 2, 3].map(|truth| [0, 1, 2, 3].map(|predicted| confusion.count(truth, predicted)));
        assert_eq!(rows, [[3, 1, 0, 0], [0, 2, 1, 0], [1, 1, 3, 0], [1, 0, 1, 0]]);
        let mistakes: Vec<_> = confusion.mistakes().collect();
        assert_eq!(mistakes, [(0, 1, 1), (1, 2, 1), (2, 0, 1), (2, 1, 1), (3, 0, 1), (3, 2, 1)]);
        close(confusion.accuracy(), 0.571_428_571_428_571_4);
        close(confusion.macro_f1(), 0.459_523_809_523_809_56);
        close(confusion.matthews(), 0.404_805_906_970_892_1);
        let scores = confusion.per_class();
        for (score, (precision, recall, f1, support)) in scores.iter().zip([
            (0.6, 0.75, 2.0 / 3.0, 4),
            (0.5, 2.0 / 3.0, 4.0 / 7.0, 3),
            (0.6, 0.6, 0.6, 5),
            (0.0, 0.0, 0.0, 2),
        ]) {
            close(score.precision, precision);
            close(score.recall, recall);
            close(score.f1, f1);
            assert_eq!(score.support, support);
        }
    }

    #[test]
    fn two_classes_agree_with_scikit_learn() {
        let confusion = Confusion::of(2, &[1, 0, 1, 1, 0, 1, 0, 0, 1, 1], &[1, 0, 0, 1, 0, 1, 1, 0, 1, 0]);
        close(confusion.accuracy(), 0.7);
        close(confusion.macro_f1(), 0.696_969_696_969_697);
        close(confusion.matthews(), 0.408_248_290_463_863);
        close(confusion.per_class()[1].f1, 0.727_272_727_272_727_3);
    }

    #[test]
    fn an_unused_class_and_a_constant_prediction_give_numbers() {
        let confusion = Confusion::of(3, &[0, 1], &[0, 0]);
        close(confusion.macro_f1(), 1.0 / 3.0);
        close(confusion.matthews(), 0.0);
    }

    #[test]
    fn scores_without_examples_are_not_measured() {
        assert!(Confusion::new(2).accuracy().is_nan() && Confusion::new(0).macro_f1().is_nan());
        let one_class = Confusion::of(2, &[1, 1, 1], &[1, 0, 1]);
        assert!(one_class.matthews().is_nan());
        close(one_class.accuracy(), 2.0 / 3.0);
    }

    #[test]
    fn a_hundred_thousand_classes_cost_little() {
        // A full matrix would take 80 GB.
        let mut confusion = Confusion::new(100_000);
        (0..100_000).for_each(|class| confusion.add(class, class - class % 2));
        close(confusion.accuracy(), 0.5);
        assert_eq!((confusion.mistakes().count(), confusion.per_class().len()), (50_000, 100_000));
        assert!(confusion.matthews() > 0.4);
    }
}
