//! The result of a task: the scores of each model, and a bootstrap test of each pair of models.

use serde::Serialize;

use crate::trials::means::mean_and_deviation;
use base::scores::{Difference, Metric, Outcomes, Resampled, mean, sample_std};
use config::NamedTask;

/// Replicates of the bootstrap: the ends of its intervals are known to about a twentieth of their length.
const REPLICATES: u64 = 1000;

/// Seed of the bootstrap. It is fixed, so that the same predictions give the same tables.
const SEED: u64 = 42;

/// The kind of a row in the table of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RowKind {
    /// A model that the user named.
    Model,
    /// The architecture and tokenizer of such a model, with random weights before fine-tuning.
    Twin,
    /// A baseline without a neural network.
    Floor,
    /// Scores of a model that were published elsewhere.
    Published,
}

/// The size of a model with its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ModelSize {
    pub(super) parameters: u64,
    pub(super) max_sequence_length: usize,
    pub(super) vocabulary_size: usize,
}

/// A row before it is scored.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: RowKind,
    /// The outcomes of each seed that did not diverge.
    pub(super) outcomes: Vec<Outcomes>,
    /// Those on test examples; empty without a test file.
    pub(super) test_outcomes: Vec<Outcomes>,
    /// Number of seeds that diverged.
    pub(super) diverged: usize,
    /// The size of the model; absent for a baseline.
    pub(super) size: Option<ModelSize>,
}

/// A row of the table of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Scored {
    pub(super) name: String,
    pub(super) kind: RowKind,
    /// The score with each seed that did not diverge; NaN if it is not defined, such as the correlation of a
    /// constant.
    pub(super) scores: Vec<f64>,
    /// The mean over seeds; absent if all seeds diverged or a score is not defined.
    pub(super) mean: Option<f64>,
    /// The sample standard deviation over seeds; absent for one seed.
    pub(super) std: Option<f64>,
    /// Number of seeds that diverged.
    pub(super) diverged: usize,
}

impl Scored {
    fn new(row: &Row, metric: Metric) -> Self {
        let scores: Vec<f64> = row.outcomes.iter().map(|outcomes| outcomes.score(metric)).collect();
        Self {
            name: row.name.clone(),
            kind: row.kind,
            mean: Some(mean(&scores)).filter(|mean| mean.is_finite()),
            std: (scores.len() > 1).then(|| sample_std(&scores)).filter(|std| std.is_finite()),
            scores,
            diverged: row.diverged,
        }
    }

    /// The mean with its standard deviation; `-` if training diverged with all seeds.
    pub(super) fn mean_text(&self, factor: f64) -> String {
        if self.scores.is_empty() {
            return "-".to_string();
        }
        mean_and_deviation(self.mean.unwrap_or(f64::NAN), self.std, factor)
    }
}

/// Two rows that are compared; the left one is always a model, not a twin or a floor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) left: String,
    pub(super) right: String,
    /// True if both rows are models that the user named.
    pub(super) of_models: bool,
    #[serde(flatten)]
    pub(super) difference: Difference,
    /// The name of the better row, if the difference is clear.
    pub(super) better: Option<String>,
}

/// The table of one task: scores of all rows, and differences of pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TaskResult {
    pub(super) name: String,
    pub(super) metric: Metric,
    /// Number of evaluation examples; of sentences where the task is to find entities.
    pub(super) examples: usize,
    pub(super) seeds: Vec<u64>,
    pub(super) rows: Vec<Scored>,
    pub(super) pairs: Vec<Pair>,
}

impl TaskResult {
    /// Scores the rows, and compares each model with every row after it.
    pub(super) fn new(task: &NamedTask, rows: &[Row]) -> Self {
        let metric = task.metric;
        let scored: Vec<Scored> = rows.iter().map(|row| Scored::new(row, metric)).collect();
        let examples = rows.iter().flat_map(|row| &row.outcomes).next().map_or(0, Outcomes::len);
        let whole: Vec<&Row> = rows.iter().filter(|row| !row.outcomes.is_empty()).collect();
        let outcomes: Vec<Vec<Outcomes>> = whole.iter().map(|row| row.outcomes.clone()).collect();
        let resampled = Resampled::new(&outcomes, metric, REPLICATES, SEED);
        let mut pairs = Vec::new();
        for (left, row) in whole.iter().enumerate().filter(|(_, row)| row.kind == RowKind::Model) {
            for (right, other) in whole.iter().enumerate().skip(left + 1) {
                let difference = resampled.difference(left, right);
                let left_is_better = metric.better().is_better(difference.difference, 0.0);
                let name = if left_is_better { &row.name } else { &other.name };
                pairs.push(Pair {
                    left: row.name.clone(),
                    right: other.name.clone(),
                    of_models: other.kind == RowKind::Model,
                    difference,
                    better: difference.is_clear().then(|| name.clone()),
                });
            }
        }
        let seeds = task.seeds.clone();
        Self { name: task.name.clone(), metric, examples, seeds, rows: scored, pairs }
    }

    /// The index of the row with the best mean; `None` if several rows share it.
    pub(super) fn best(&self) -> Option<usize> {
        self.metric.better().only_best_place(self.rows.iter().map(|row| row.mean))
    }
}
