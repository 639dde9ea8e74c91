//! The result of a comparison by a protocol: the mean over iterations of each score, with its interval, on
//! validation and test examples; next to it the published scores of other models.
//!
//! The rows of the other kinds of comparison are in `result.rs`; `protocol_files.rs` writes these ones.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::trials::comparison::result::{ModelSize, Row, RowKind};
use crate::trials::comparison::tables::name;
use crate::trials::means::mean_and_deviation;
use base::pages::table::Table;
use base::quantity::format_grouped;
use base::scores::{Metric, Outcomes, mean, sample_std};
use config::{Departure, NamedTask, ProtocolTask};

/// Half of the width of an interval of 95 %, in standard errors.
const STANDARD_ERRORS: f64 = 1.96;

/// A score over the iterations, as a share (not in percent).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Estimate {
    /// The mean over the iterations.
    pub(super) mean: f64,
    /// 1.96 standard errors; absent for one iteration.
    pub(super) half_width: Option<f64>,
    /// The score of each iteration; empty if the score was published elsewhere.
    pub(super) scores: Vec<f64>,
}

impl Estimate {
    fn new(scores: Vec<f64>) -> Self {
        let error = sample_std(&scores) / (scores.len() as f64).sqrt();
        let half_width = (scores.len() > 1).then_some(STANDARD_ERRORS * error);
        Self { mean: mean(&scores), half_width, scores }
    }
}

/// The scores of one model, twin or baseline, or published ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProtocolRow {
    pub(super) name: String,
    pub(super) kind: RowKind,
    /// Publication of the scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The model's size; absent for baselines and published rows.
    #[serde(flatten)]
    pub(super) size: Option<ModelSize>,
    /// Number of iterations in which training diverged; they are not in the means.
    diverged: usize,
    pub(super) validation: BTreeMap<&'static str, Estimate>,
    pub(super) test: BTreeMap<&'static str, Estimate>,
}

/// The result of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProtocolResult {
    pub(super) name: String,
    #[serde(skip)]
    pub(super) metrics: &'static [Metric],
    pub(super) seeds: Vec<u64>,
    /// Number of validation examples; of sentences where the task is to find entities.
    validation_examples: usize,
    test_examples: usize,
    pub(super) departures: Vec<Departure>,
    pub(super) rows: Vec<ProtocolRow>,
}

impl ProtocolResult {
    /// Scores the rows of a task by its protocol, and adds the published ones.
    pub(super) fn new(task: &NamedTask, protocol: &ProtocolTask, rows: &[Row]) -> Self {
        let metrics = protocol.protocol.metrics(task.config.goal()).unwrap_or_default();
        let mut scored: Vec<ProtocolRow> = Vec::new();
        for row in rows {
            scored.push(ProtocolRow {
                name: row.name.clone(),
                kind: row.kind,
                source: None,
                size: row.size,
                diverged: row.diverged,
                validation: estimates(metrics, &row.outcomes),
                test: estimates(metrics, &row.test_outcomes),
            });
        }
        for published in &protocol.published {
            let test = published.scores.iter().map(|(name, percent)| {
                (*name, Estimate { mean: percent / 100.0, half_width: None, scores: Vec::new() })
            });
            scored.push(ProtocolRow {
                name: published.name.clone(),
                kind: RowKind::Published,
                source: Some(published.source.clone()),
                size: None,
                diverged: 0,
                validation: BTreeMap::new(),
                test: test.collect(),
            });
        }
        let first = rows.first();
        Self {
            name: task.name.clone(),
            metrics,
            seeds: task.seeds.clone(),
            validation_examples: first.map_or(0, |row| num_examples(&row.outcomes)),
            test_examples: first.map_or(0, |row| num_examples(&row.test_outcomes)),
            departures: protocol.departures.clone(),
            rows: scored,
        }
    }

    /// The score by which rows are ranked.
    pub(super) fn first_metric(&self) -> &'static str {
        self.metrics.first().map_or("", |metric| metric.name())
    }

    pub(super) fn title(&self) -> String {
        let what = if self.metrics.contains(&Metric::OverallF1) { "sentences" } else { "examples" };
        let iterations = match self.seeds.len() {
            1 => "1 iteration".to_string(),
            count => format!("{count} iterations"),
        };
        let validation = format_grouped(self.validation_examples as u64);
        let test = format_grouped(self.test_examples as u64);
        format!("{}: {iterations}, {validation} validation and {test} test {what}", self.name)
    }

    /// The table of scores: a row for each model, baseline and published model. The best one is marked unless
    /// several are best.
    pub(super) fn table(&self) -> Table {
        let mut header = vec!["model".to_string()];
        for split in ["test", "validation"] {
            header.extend(self.metrics.iter().map(|metric| format!("{split}: {}", metric.title())));
        }
        let mut rows = Vec::new();
        for row in &self.rows {
            let lost = if row.diverged > 0 { format!(" ({} diverged)", row.diverged) } else { String::new() };
            let mut cells = vec![name(&format!("{}{lost}", row.name), row.kind)];
            for split in [&row.test, &row.validation] {
                cells.extend(self.metrics.iter().map(|metric| text(split.get(metric.name())).into()));
            }
            rows.push(cells.into_iter().collect());
        }
        let means = self.rows.iter().map(|row| Some(row.test.get(self.first_metric())?.mean));
        let best = self.metrics.first().and_then(|metric| metric.better().only_best_place(means));
        Table::new(header, rows).with_best(best)
    }

    /// Sentences about the table: what departs from the protocol, and where published scores are from.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for one in &self.departures {
            let Departure { key, value, protocol } = one;
            remarks.push(format!("not the protocol's: `{key}` is {}, not {}", plain(value), plain(protocol)));
        }
        if self.departures.is_empty() {
            remarks.push("all values are the protocol's".to_string());
        }
        let mut by_source: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            if let Some(source) = &row.source {
                by_source.entry(source).or_default().push(&row.name);
            }
        }
        remarks.extend(by_source.iter().map(|(source, names)| format!("{source}: {}", names.join(", "))));
        remarks
    }
}

/// The number of examples of each iteration.
fn num_examples(outcomes: &[Outcomes]) -> usize {
    outcomes.first().map_or(0, Outcomes::len)
}

/// The estimate of each score over the outcomes of the iterations.
fn estimates(metrics: &[Metric], outcomes: &[Outcomes]) -> BTreeMap<&'static str, Estimate> {
    if outcomes.is_empty() {
        return BTreeMap::new();
    }
    let estimates = metrics.iter().map(|&metric| {
        let scores = outcomes.iter().map(|outcomes| score(outcomes, metric)).collect();
        (metric.name(), Estimate::new(scores))
    });
    estimates.collect()
}

/// A score by the protocol. As in scikit-learn, the correlation with a constant is 0.
fn score(outcomes: &Outcomes, metric: Metric) -> f64 {
    let score = outcomes.score(metric);
    if metric == Metric::MatthewsCorrelation && score.is_nan() { 0.0 } else { score }
}

/// An estimate in percent, or `-`.
pub(super) fn text(estimate: Option<&Estimate>) -> String {
    estimate.map_or("-".to_string(), |one| mean_and_deviation(one.mean, one.half_width, 100.0))
}

/// A value of a configuration as text, without quotation marks.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "absent".to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // numpy 2.4.6: `1.96 * np.std(scores, ddof=1) / np.sqrt(len(scores))`, as EuroEval computes it.
    #[test]
    fn an_interval_is_euroevals() {
        let estimate = Estimate::new(vec![0.5, 0.625, 0.75, 0.5]);
        assert!((estimate.mean - 0.59375).abs() < 1e-15);
        assert!((estimate.half_width.unwrap() - 0.117_284_820_700_151_42).abs() < 1e-15);
        assert_eq!(Estimate::new(vec![0.5]).half_width, None);
        assert_eq!(text(Some(&estimate)), "59.38 ± 11.73");
        assert_eq!(text(None), "-");
    }

    #[test]
    fn the_correlation_with_a_constant_is_zero() {
        let one_class = Outcomes::labels(2, &[1, 1], &[1, 0]);
        assert!(one_class.score(Metric::MatthewsCorrelation).is_nan());
        assert_eq!(score(&one_class, Metric::MatthewsCorrelation).to_bits(), 0.0_f64.to_bits());
    }
}
