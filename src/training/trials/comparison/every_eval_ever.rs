//! The result of a comparison as JSON lines in the schema Every Eval Ever, version 0.2.1: a record for each
//! model on each task, with the names of scores and the details that EuroEval writes.
//!
//! <https://github.com/evaleval/every_eval_ever>, `eval.schema.json`. All details are texts there.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::trials::comparison::protocol::{Estimate, ProtocolResult, ProtocolRow};
use crate::trials::comparison::result::RowKind;
use base::scores::{Better, Metric};

const SCHEMA_VERSION: &str = "0.2.1";

/// Returns the records of all models that the user named, a line each. `started` is in seconds since 1970.
pub(super) fn lines(results: &[ProtocolResult], started: u64) -> String {
    let mut lines = String::new();
    for result in results {
        for row in result.rows.iter().filter(|row| row.kind == RowKind::Model) {
            lines += &record(result, row, started).to_string();
            lines.push('\n');
        }
    }
    lines
}

fn record(result: &ProtocolResult, row: &ProtocolRow, started: u64) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let mut details = Map::new();
    if let Some(size) = row.size {
        details.insert("num_model_parameters".to_string(), json!(size.parameters.to_string()));
        details.insert("max_sequence_length".to_string(), json!(size.max_sequence_length.to_string()));
        details.insert("vocabulary_size".to_string(), json!(size.vocabulary_size.to_string()));
    }
    details.insert("generative".to_string(), json!("false"));
    details.insert("merge".to_string(), json!("false"));
    let is_tagging = result.metrics.contains(&Metric::OverallF1);
    let task = if is_tagging { "named-entity-recognition" } else { "text-classification" };
    let departures: Vec<String> =
        result.departures.iter().map(|one| format!("{}={}", one.key, one.value)).collect();
    let evaluations =
        [("test", &row.test), ("val", &row.validation)].into_iter().flat_map(|(split, scores)| {
            result.metrics.iter().filter_map(move |&metric| {
                Some(evaluation(
                    result,
                    &format!("{split}_{}", name(metric)),
                    metric,
                    scores.get(metric.name())?,
                ))
            })
        });
    let evaluations: Vec<Value> = evaluations.collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": format!("{}/{}/{started}", result.name, row.name),
        "retrieved_timestamp": started.to_string(),
        "source_metadata": {
            "source_name": "mlmtrain compare --protocol euroeval",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "model_info": {
            "name": row.name,
            "id": row.name,
            "inference_engine": {"name": "mlmtrain", "version": version},
            "additional_details": details,
        },
        "eval_library": {
            "name": "mlmtrain",
            "version": version,
            "additional_details": {
                "dataset": result.name,
                "task": task,
                "protocol": "euroeval",
                "departures_from_protocol": departures.join(", "),
                "validation_split": "false",
                "raw_results": raw(result, row).to_string(),
            },
        },
        "evaluation_results": evaluations,
    })
}

/// The name of a score in EuroEval's results.
fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::MatthewsCorrelation => "mcc",
        Metric::F1 => "macro_f1",
        other => other.name(),
    }
}

/// One score in percent, with its interval.
fn evaluation(result: &ProtocolResult, name: &str, metric: Metric, estimate: &Estimate) -> Value {
    let percent = 100.0 * estimate.mean;
    let mut uncertainty = Map::new();
    if let Some(half_width) = estimate.half_width {
        let interval = json!({
            "lower": percent - 100.0 * half_width,
            "upper": percent + 100.0 * half_width,
            "confidence_level": 0.95,
            "method": "bootstrap",
        });
        uncertainty.insert("confidence_interval".to_string(), interval);
    }
    uncertainty.insert("num_samples".to_string(), json!(estimate.scores.len()));
    let least = if metric == Metric::MatthewsCorrelation { -100 } else { 0 };
    json!({
        "evaluation_name": name,
        "source_data": {"dataset_name": result.name, "source_type": "other"},
        "metric_config": {
            "lower_is_better": metric.better() == Better::Lower,
            "score_type": "continuous",
            "min_score": least,
            "max_score": 100,
        },
        "score_details": {"score": percent, "uncertainty": uncertainty},
    })
}

/// The test scores of each iteration, as EuroEval stores them: a list of objects, as shares.
fn raw(result: &ProtocolResult, row: &ProtocolRow) -> Value {
    let iterations = row.test.values().map(|estimate| estimate.scores.len()).max().unwrap_or(0);
    let mut raw = Vec::new();
    for at in 0..iterations {
        let scores: BTreeMap<String, f64> = result
            .metrics
            .iter()
            .filter_map(|&metric| {
                let score = row.test.get(metric.name())?.scores.get(at)?;
                Some((format!("test_{}", name(metric)), *score))
            })
            .collect();
        raw.push(json!(scores));
    }
    Value::Array(raw)
}
