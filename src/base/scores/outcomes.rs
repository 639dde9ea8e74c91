//! Labels and predictions of each example, and the scores of any sample of them.
//!
//! They are stored, so that the same predictions can be scored again on resampled examples (`bootstrap.rs`).

use serde::{Deserialize, Serialize};

use crate::scores::{Better, Confusion, EntityCounts, LabelTally, mean, pearson, spearman};

/// Scores, with the names that an evaluation gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of examples with the right label.
    Accuracy,
    /// Unweighted mean of F1 over the labels.
    F1,
    /// Matthews correlation coefficient.
    MatthewsCorrelation,
    /// F1 of all labels counted together, of examples with any number of labels.
    F1Micro,
    /// The unweighted mean of F1 over all labels.
    F1Macro,
    /// The mean of F1 over the examples.
    F1Samples,
    /// Share of examples whose predicted labels are exactly right.
    ExactMatch,
    /// F1 of entities, all types together.
    OverallF1,
    /// Pearson's correlation of numbers; the mean if an example has several numbers.
    Pearson,
    /// Spearman's rank correlation of numbers; the mean if an example has several numbers.
    Spearmanr,
    /// Mean squared error.
    Mse,
    /// Mean absolute error.
    Mae,
}

impl Metric {
    /// Scores of class labels, the usual one first.
    pub const OF_LABELS: &[Self] = &[Self::Accuracy, Self::F1, Self::MatthewsCorrelation];
    /// Scores of sets of labels, the usual one first.
    pub const OF_LABEL_SETS: &[Self] = &[Self::F1Micro, Self::F1Macro, Self::F1Samples, Self::ExactMatch];
    /// Scores of entities.
    pub const OF_ENTITIES: &[Self] = &[Self::OverallF1];
    /// Scores of numbers, the usual one first.
    pub const OF_NUMBERS: &[Self] = &[Self::Pearson, Self::Spearmanr, Self::Mse, Self::Mae];

    /// The score with this name in results.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::OF_LABELS, Self::OF_LABEL_SETS, Self::OF_ENTITIES, Self::OF_NUMBERS];
        all.into_iter().flatten().copied().find(|metric| metric.name() == name)
    }

    /// Name in results, without `eval_`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 => "f1",
            Self::MatthewsCorrelation => "matthews_correlation",
            Self::F1Micro => "f1_micro",
            Self::F1Macro => "f1_macro",
            Self::F1Samples => "f1_samples",
            Self::ExactMatch => "exact_match",
            Self::OverallF1 => "overall_f1",
            Self::Pearson => "pearson",
            Self::Spearmanr => "spearmanr",
            Self::Mse => "mse",
            Self::Mae => "mae",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 | Self::F1Macro => "macro F1",
            Self::MatthewsCorrelation => "Matthews",
            Self::F1Micro => "micro F1",
            Self::F1Samples => "samples F1",
            Self::ExactMatch => "exact match",
            Self::OverallF1 => "entity F1",
            Self::Pearson => "Pearson",
            Self::Spearmanr => "Spearman",
            Self::Mse => "squared error",
            Self::Mae => "absolute error",
        }
    }

    /// Direction in which the score is better.
    pub fn better(self) -> Better {
        Better::of(self.name())
    }

    /// Factor for people: 100 for a score that is read in percent, else 1.
    pub fn factor(self) -> f64 {
        if matches!(self, Self::Mse | Self::Mae) { 1.0 } else { 100.0 }
    }
}

/// Labels in the data and predictions for each example, in the order of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcomes {
    /// Class ids, one per example.
    Labels {
        /// Number of classes.
        classes: usize,
        /// Classes in the data.
        gold: Vec<u32>,
        /// Predicted classes, of the same number.
        predicted: Vec<u32>,
    },
    /// Sets of label ids, one per example, each ascending.
    LabelSets {
        /// Number of labels.
        classes: usize,
        /// Labels in the data.
        gold: Vec<Vec<u32>>,
        /// Predicted labels.
        predicted: Vec<Vec<u32>>,
    },
    /// Counts of entities, sentence by sentence.
    Entities {
        /// Counts of each sentence: in the data, predicted, both.
        sentences: Vec<EntityCounts>,
    },
    /// Numbers, one or several per example.
    Numbers {
        /// Numbers in the data.
        gold: Vec<Vec<f32>>,
        /// Predicted numbers.
        predicted: Vec<Vec<f32>>,
    },
}

impl Outcomes {
    /// Outcomes of class ids, which must be below `classes`.
    pub fn labels(classes: usize, gold: &[u32], predicted: &[u32]) -> Self {
        Self::Labels { classes, gold: gold.to_vec(), predicted: predicted.to_vec() }
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        match self {
            Self::Labels { gold, .. } => gold.len(),
            Self::LabelSets { gold, .. } => gold.len(),
            Self::Entities { sentences } => sentences.len(),
            Self::Numbers { gold, .. } => gold.len(),
        }
    }

    /// Returns true if there are no examples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The scores that are defined for these outcomes, the usual one first.
    pub fn metrics(&self) -> &'static [Metric] {
        match self {
            Self::Labels { .. } => Metric::OF_LABELS,
            Self::LabelSets { .. } => Metric::OF_LABEL_SETS,
            Self::Entities { .. } => Metric::OF_ENTITIES,
            Self::Numbers { .. } => Metric::OF_NUMBERS,
        }
    }

    /// A score on all examples; NaN if it is undefined, such as the correlation of constant predictions.
    pub fn score(&self, metric: Metric) -> f64 {
        let all: Vec<u32> = (0..self.len() as u32).collect();
        self.score_of(metric, &all)
    }

    /// A score on the examples with these indices, which may repeat.
    ///
    /// # Panics
    /// If there is no example with an index.
    pub fn score_of(&self, metric: Metric, sample: &[u32]) -> f64 {
        match self {
            Self::Labels { gold, predicted, .. } if metric == Metric::Accuracy => {
                let right = sample.iter().filter(|&&at| gold[at as usize] == predicted[at as usize]);
                right.count() as f64 / sample.len() as f64
            }
            Self::Labels { classes, gold, predicted } => {
                let confusion = Confusion::of(*classes, &picked(gold, sample), &picked(predicted, sample));
                if metric == Metric::F1 { confusion.macro_f1() } else { confusion.matthews() }
            }
            Self::LabelSets { classes, gold, predicted } => {
                let mut tally = LabelTally::new(*classes);
                for &at in sample {
                    tally.add(&gold[at as usize], &predicted[at as usize]);
                }
                match metric {
                    Metric::F1Macro => tally.f1_macro(),
                    Metric::F1Samples => tally.f1_samples(),
                    Metric::ExactMatch => tally.exact_match(),
                    _ => tally.f1_micro(),
                }
            }
            Self::Entities { sentences } => {
                sample.iter().map(|&at| sentences[at as usize]).sum::<EntityCounts>().f1()
            }
            Self::Numbers { gold, predicted } => {
                let numbers = gold.first().map_or(0, Vec::len);
                let scores = (0..numbers).map(|number| {
                    score_of_numbers(
                        metric,
                        &column(gold, number, sample),
                        &column(predicted, number, sample),
                    )
                });
                mean(&scores.collect::<Vec<f64>>())
            }
        }
    }
}

fn picked(ids: &[u32], sample: &[u32]) -> Vec<u32> {
    sample.iter().map(|&at| ids[at as usize]).collect()
}

/// One number of each example in a sample.
fn column(rows: &[Vec<f32>], number: usize, sample: &[u32]) -> Vec<f64> {
    sample.iter().map(|&at| f64::from(rows[at as usize][number])).collect()
}

fn score_of_numbers(metric: Metric, gold: &[f64], predicted: &[f64]) -> f64 {
    match metric {
        Metric::Mse => mean_error(gold, predicted, |error| error * error),
        Metric::Mae => mean_error(gold, predicted, f64::abs),
        Metric::Spearmanr => spearman(gold, predicted),
        _ => pearson(gold, predicted),
    }
}

fn mean_error(gold: &[f64], predicted: &[f64], size: fn(f64) -> f64) -> f64 {
    mean(&gold.iter().zip(predicted).map(|(gold, predicted)| size(predicted - gold)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_a_sample_are_those_of_its_examples() {
        let labels = Outcomes::labels(3, &[0, 1, 2, 1], &[0, 2, 2, 1]);
        assert!((labels.score(Metric::Accuracy) - 0.75).abs() < 1e-12);
        assert!((labels.score_of(Metric::Accuracy, &[1, 1, 0]) - 1.0 / 3.0).abs() < 1e-12);
        let whole = Confusion::of(3, &[0, 1, 2, 1], &[0, 2, 2, 1]);
        assert_eq!(labels.score(Metric::F1).to_bits(), whole.macro_f1().to_bits());
        assert_eq!(labels.score(Metric::MatthewsCorrelation).to_bits(), whole.matthews().to_bits());

        let gold = vec![vec![0, 1], vec![], vec![2]];
        let sets = Outcomes::LabelSets { classes: 3, gold, predicted: vec![vec![0], vec![], vec![1, 2]] };
        assert!((sets.score(Metric::F1Micro) - 2.0 * 2.0 / (3.0 + 3.0)).abs() < 1e-12);
        assert!((sets.score(Metric::F1Macro) - 2.0 / 3.0).abs() < 1e-12);
        assert!((sets.score_of(Metric::F1Samples, &[0, 0, 1]) - 2.0 * (2.0 / 3.0) / 3.0).abs() < 1e-12);
        assert!((sets.score_of(Metric::ExactMatch, &[1, 2]) - 0.5).abs() < 1e-12);

        let sentences = [[2, 1, 1], [0, 3, 0], [1, 1, 1]].map(EntityCounts::from).to_vec();
        let entities = Outcomes::Entities { sentences };
        assert!((entities.score(Metric::OverallF1) - 2.0 * 2.0 / (5.0 + 3.0)).abs() < 1e-12);
        assert!((entities.score_of(Metric::OverallF1, &[2, 2]) - 1.0).abs() < 1e-12);

        let gold = [1.0, 2.0, 4.0].map(|value| vec![value]).to_vec();
        let predicted = [1.0, 1.0, 6.0].map(|value| vec![value]).to_vec();
        let numbers = Outcomes::Numbers { gold, predicted };
        assert!((numbers.score(Metric::Mse) - 5.0 / 3.0).abs() < 1e-12);
        assert!((numbers.score(Metric::Mae) - 1.0).abs() < 1e-12);
        assert!(numbers.score_of(Metric::Pearson, &[0, 1]).is_nan(), "of constant predictions");
    }
}
