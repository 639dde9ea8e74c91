//! The scores of a task and what they say of each pair of models.

use serde::Serialize;

use crate::config::NamedTask;
use crate::scores::Difference;
use crate::scores::Metric;
use crate::scores::Outcomes;
use crate::scores::Resampled;
use crate::scores::mean;
use crate::scores::sample_std;
use crate::trials::table::mean_and_deviation;

/// Replicates of the bootstrap: the ends of its intervals are known to about a twentieth of their length.
const REPLICATES: u64 = 1000;

/// Its seed: tables of the same predictions are the same.
const SEED: u64 = 42;

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RowKind {
    /// A model that was asked for.
    Model,
    /// The architecture and tokenizer of one, with weights that were never trained.
    Twin,
    /// No neural network.
    Floor,
}

/// A row before it is scored.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: RowKind,
    /// With each seed that did not diverge.
    pub(super) outcomes: Vec<Outcomes>,
    pub(super) diverged: usize,
}

/// A row of the table of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Scored {
    pub(super) name: String,
    pub(super) kind: RowKind,
    /// With each seed that did not diverge; NaN for one that is not measured, as a correlation that is not
    /// defined.
    pub(super) scores: Vec<f64>,
    /// Absent where all diverged, or one is not measured.
    pub(super) mean: Option<f64>,
    /// Absent for one seed.
    pub(super) std: Option<f64>,
    pub(super) diverged: usize,
}

impl Scored {
    /// The mean with its deviation; `-` where training diverged with all seeds.
    pub(super) fn mean_text(&self, factor: f64) -> String {
        if self.scores.is_empty() {
            return "-".to_string();
        }
        mean_and_deviation(self.mean.unwrap_or(f64::NAN), self.std, factor)
    }
}

/// Two rows, of which one at least is a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) left: String,
    pub(super) right: String,
    /// Whether both are models that were asked for.
    pub(super) of_models: bool,
    #[serde(flatten)]
    pub(super) difference: Difference,
    /// Which one is better, where that is clear.
    pub(super) better: Option<String>,
}

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TaskResult {
    pub(super) name: String,
    pub(super) metric: Metric,
    /// Evaluation examples: sentences for entities.
    pub(super) examples: usize,
    pub(super) seeds: Vec<u64>,
    pub(super) rows: Vec<Scored>,
    pub(super) pairs: Vec<Pair>,
}

impl TaskResult {
    /// Scores the rows and compares each model with all rows behind it.
    pub(super) fn new(task: &NamedTask, rows: &[Row]) -> Self {
        let metric = task.metric;
        let scored = |row: &Row| {
            let scores: Vec<f64> = row.outcomes.iter().map(|outcomes| outcomes.score(metric)).collect();
            Scored {
                name: row.name.clone(),
                kind: row.kind,
                mean: Some(mean(&scores)).filter(|mean| mean.is_finite()),
                std: (scores.len() > 1).then(|| sample_std(&scores)).filter(|std| std.is_finite()),
                scores,
                diverged: row.diverged,
            }
        };
        let scored: Vec<Scored> = rows.iter().map(scored).collect();
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

    /// The model with the best mean, the first of equals.
    pub(super) fn best(&self) -> Option<usize> {
        self.metric.better().best_place(self.rows.iter().map(|row| row.mean))
    }
}
