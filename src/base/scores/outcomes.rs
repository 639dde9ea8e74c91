//! Labels and predictions of each example, and the scores of any sample of them.
//!
//! They are stored, so that the same predictions can be scored again on resampled examples (`bootstrap.rs`).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::scores::correlation::auroc;
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
    /// Area under the ROC curve: of the second of two classes, else the mean over all classes or labels.
    Auroc,
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
    /// F1 of entities as EuroEval counts them, without the type `MISC`.
    MicroF1NoMisc,
    /// F1 of entities as EuroEval counts them, all types together.
    MicroF1,
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
    pub const OF_LABELS: &[Self] = &[Self::Accuracy, Self::F1, Self::MatthewsCorrelation, Self::Auroc];
    /// Scores of sets of labels, the usual one first.
    pub const OF_LABEL_SETS: &[Self] =
        &[Self::F1Micro, Self::F1Macro, Self::F1Samples, Self::ExactMatch, Self::Auroc];
    /// Scores of entities, the usual one first.
    pub const OF_ENTITIES: &[Self] = &[Self::OverallF1, Self::MicroF1NoMisc, Self::MicroF1];
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
            Self::Auroc => "auroc",
            Self::F1Micro => "f1_micro",
            Self::F1Macro => "f1_macro",
            Self::F1Samples => "f1_samples",
            Self::ExactMatch => "exact_match",
            Self::OverallF1 => "overall_f1",
            Self::MicroF1NoMisc => "micro_f1_no_misc",
            Self::MicroF1 => "micro_f1",
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
            Self::Auroc => "AUROC",
            Self::F1Micro | Self::MicroF1 => "micro F1",
            Self::MicroF1NoMisc => "micro F1 without MISC",
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
        /// The probability of each class, for each example. Empty in records of earlier versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probabilities: Vec<Vec<f32>>,
    },
    /// Sets of label ids, one per example, each ascending.
    LabelSets {
        /// Number of labels.
        classes: usize,
        /// Labels in the data.
        gold: Vec<Vec<u32>>,
        /// Predicted labels.
        predicted: Vec<Vec<u32>>,
        /// The probability of each label, for each example. Empty in records of earlier versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probabilities: Vec<Vec<f32>>,
    },
    /// Counts of entities, sentence by sentence.
    Entities {
        /// Counts of each sentence: in the data, predicted, both.
        sentences: Vec<EntityCounts>,
        /// The same as EuroEval counts them: of all types, and of all but `MISC`. Empty in records of earlier
        /// versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        euroeval: Vec<[EntityCounts; 2]>,
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
        Self::Labels {
            classes,
            gold: gold.to_vec(),
            predicted: predicted.to_vec(),
            probabilities: Vec::new(),
        }
    }

    /// Outcomes of sets of label ids, which must be ascending and below `classes`.
    pub fn label_sets(classes: usize, gold: Vec<Vec<u32>>, predicted: Vec<Vec<u32>>) -> Self {
        Self::LabelSets { classes, gold, predicted, probabilities: Vec::new() }
    }

    /// The same outcomes with the probability of each class or label, for each example.
    #[must_use]
    pub fn with_probabilities(mut self, rows: Vec<Vec<f32>>) -> Self {
        if let Self::Labels { probabilities, .. } | Self::LabelSets { probabilities, .. } = &mut self {
            *probabilities = rows;
        }
        self
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        match self {
            Self::Labels { gold, .. } => gold.len(),
            Self::LabelSets { gold, .. } => gold.len(),
            Self::Entities { sentences, .. } => sentences.len(),
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
            Self::Labels { classes, gold, probabilities, .. } if metric == Metric::Auroc => {
                // Of two classes, the second one is the positive one.
                let first = usize::from(*classes == 2);
                mean_auroc(first..*classes, probabilities, sample, &|at, class| gold[at] as usize == class)
            }
            Self::Labels { classes, gold, predicted, .. } => {
                let confusion = Confusion::of(*classes, &picked(gold, sample), &picked(predicted, sample));
                if metric == Metric::F1 { confusion.macro_f1() } else { confusion.matthews() }
            }
            Self::LabelSets { classes, gold, probabilities, .. } if metric == Metric::Auroc => {
                mean_auroc(0..*classes, probabilities, sample, &|at, label| {
                    gold[at].binary_search(&(label as u32)).is_ok()
                })
            }
            Self::LabelSets { classes, gold, predicted, .. } => {
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
            Self::Entities { euroeval, .. } if metric != Metric::OverallF1 => {
                euroeval_f1(euroeval, metric == Metric::MicroF1NoMisc, sample)
            }
            Self::Entities { sentences, .. } => {
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

/// F1 as EuroEval defines it: 1 if there are no entities, neither in the data nor predicted. NaN without
/// counts.
fn euroeval_f1(counts: &[[EntityCounts; 2]], drops_misc: bool, sample: &[u32]) -> f64 {
    if counts.is_empty() {
        return f64::NAN;
    }
    let sum: EntityCounts = sample.iter().map(|&at| counts[at as usize][usize::from(drops_misc)]).sum();
    if sum.support + sum.predicted == 0 { 1.0 } else { sum.f1() }
}

/// The mean over classes of the area under the ROC curve of each against the rest. NaN without probabilities,
/// and if a class has no example, or all.
fn mean_auroc(
    classes: Range<usize>,
    probabilities: &[Vec<f32>],
    sample: &[u32],
    has_class: &dyn Fn(usize, usize) -> bool,
) -> f64 {
    if probabilities.is_empty() {
        return f64::NAN;
    }
    let mut areas = Vec::with_capacity(classes.len());
    for class in classes {
        let is_positive: Vec<bool> = sample.iter().map(|&at| has_class(at as usize, class)).collect();
        let scores = column(probabilities, class, sample);
        areas.push(auroc(&scores, &is_positive));
        if areas.last().is_some_and(|area| area.is_nan()) {
            return f64::NAN;
        }
    }
    mean(&areas)
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
        let sets = Outcomes::label_sets(3, gold, vec![vec![0], vec![], vec![1, 2]]);
        assert!((sets.score(Metric::F1Micro) - 2.0 * 2.0 / (3.0 + 3.0)).abs() < 1e-12);
        assert!((sets.score(Metric::F1Macro) - 2.0 / 3.0).abs() < 1e-12);
        assert!((sets.score_of(Metric::F1Samples, &[0, 0, 1]) - 2.0 * (2.0 / 3.0) / 3.0).abs() < 1e-12);
        assert!((sets.score_of(Metric::ExactMatch, &[1, 2]) - 0.5).abs() < 1e-12);

        assert!(sets.score(Metric::Auroc).is_nan(), "without probabilities");

        let sentences = [[2, 1, 1], [0, 3, 0], [1, 1, 1]].map(EntityCounts::from).to_vec();
        let entities = Outcomes::Entities { sentences, euroeval: Vec::new() };
        assert!(entities.score(Metric::MicroF1).is_nan(), "a record of an earlier version");
        assert!((entities.score(Metric::OverallF1) - 2.0 * 2.0 / (5.0 + 3.0)).abs() < 1e-12);
        assert!((entities.score_of(Metric::OverallF1, &[2, 2]) - 1.0).abs() < 1e-12);

        let gold = [1.0, 2.0, 4.0].map(|value| vec![value]).to_vec();
        let predicted = [1.0, 1.0, 6.0].map(|value| vec![value]).to_vec();
        let numbers = Outcomes::Numbers { gold, predicted };
        assert!((numbers.score(Metric::Mse) - 5.0 / 3.0).abs() < 1e-12);
        assert!((numbers.score(Metric::Mae) - 1.0).abs() < 1e-12);
        assert!(numbers.score_of(Metric::Pearson, &[0, 1]).is_nan(), "of constant predictions");
    }

    // scikit-learn 1.9.1: `roc_auc_score(gold, probabilities, multi_class="ovr", average="macro")` of three
    // classes, `roc_auc_score(gold, probabilities[:, 1])` of two, `average="macro"` of sets of labels.
    #[test]
    fn areas_under_the_curve_agree_with_scikit_learn() {
        let rows = [
            [0.5, 0.25, 0.25],
            [0.125, 0.25, 0.625],
            [0.25, 0.5, 0.25],
            [0.5, 0.25, 0.25],
            [0.375, 0.375, 0.25],
            [0.25, 0.25, 0.5],
            [0.5, 0.125, 0.375],
            [0.75, 0.125, 0.125],
        ];
        let classes = Outcomes::labels(3, &[0, 2, 1, 1, 0, 2, 2, 0], &[0; 8]);
        let classes = classes.with_probabilities(rows.map(Vec::from).to_vec());
        assert!((classes.score(Metric::Auroc) - 0.863_888_888_888_888_9).abs() < 1e-12);
        assert!(classes.score_of(Metric::Auroc, &[0, 1, 4, 5]).is_nan(), "no example of the second class");

        let positive = [0.25, 0.5, 0.75, 0.5, 0.5, 0.125, 0.625, 0.875];
        // The probabilities of the first class are not read.
        let rows = positive.map(|probability| vec![0.0, probability]).to_vec();
        let two = Outcomes::labels(2, &[0, 1, 1, 0, 1, 0, 0, 1], &[0; 8]).with_probabilities(rows);
        assert!((two.score(Metric::Auroc) - 0.8125).abs() < 1e-12);

        let rows = [
            [0.75, 0.25, 0.5],
            [0.5, 0.5, 0.5],
            [0.5, 0.75, 0.125],
            [0.25, 0.5, 0.375],
            [0.875, 0.125, 0.25],
            [0.375, 0.125, 0.375],
        ];
        let gold = vec![vec![0, 2], vec![1], vec![0, 1], vec![2], vec![0], vec![]];
        let sets =
            Outcomes::label_sets(3, gold, vec![vec![]; 6]).with_probabilities(rows.map(Vec::from).to_vec());
        assert!((sets.score(Metric::Auroc) - 0.877_314_814_814_814_9).abs() < 1e-12);
        assert!(sets.score_of(Metric::Auroc, &[0, 4, 5]).is_nan(), "no example with the second label");
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let old = r#"{"labels":{"classes":2,"gold":[0,1],"predicted":[0,1]}}"#;
        let outcomes: Outcomes = serde_json::from_str(old).unwrap();
        assert_eq!(outcomes, Outcomes::labels(2, &[0, 1], &[0, 1]));
        assert_eq!(serde_json::to_string(&outcomes).unwrap(), old);
        assert!(outcomes.score(Metric::Auroc).is_nan());
    }
}
