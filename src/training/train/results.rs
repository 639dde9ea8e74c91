//! Writes and reads the results of a run: `all_results.json`, `train_results.json`, `eval_results.json`, and
//! `test_results.json` of a run with test data.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::telemetry::write_results;
use crate::train::clock::Rates;
use crate::train::meter::usd_in_all;
use crate::train::state::TrainState;
use base::error::Problem;
use base::fs;

/// Name of the steps that were planned, in the results of a run that has done fewer.
pub const PLANNED_STEPS: &str = "train_planned_steps";

/// Name of the cost of training, in US dollars.
pub const COST: &str = "train_cost_usd";

const ALL_RESULTS: &str = "all_results.json";
const CAP_BYTES: u64 = 1 << 20;

/// Results of a run under the names of the Hugging Face Trainer: those of training, and the scores of the
/// final model, `tested` with their names as they are. `eval_runtime` is that of the latest evaluation.
pub fn of_run(
    state: &TrainState,
    rates: Rates,
    scores: impl IntoIterator<Item = (String, f64)>,
    tested: impl IntoIterator<Item = (String, f64)>,
) -> BTreeMap<String, f64> {
    // If only the final model was written again, no step was done and there is no speed.
    let speed = (rates.tokens_per_second > 0.0).then_some([
        ("train_tokens_per_second", rates.tokens_per_second),
        ("train_data_wait_share", rates.data_wait_share),
    ]);
    let values = [
        ("train_runtime", state.elapsed_seconds),
        ("train_num_input_tokens_seen", state.num_input_tokens_seen as f64),
        ("total_flos", state.total_flos),
        ("epoch", state.epoch),
    ];
    let evaluation = rates.eval_seconds.map(|seconds| ("eval_runtime", seconds));
    let values = values
        .into_iter()
        .chain(speed.into_iter().flatten())
        .chain(evaluation)
        .map(|(name, value)| (name.to_string(), value));
    let scores = scores.into_iter().map(|(name, value)| (format!("eval_{name}"), value));
    values.chain(scores).chain(tested).collect()
}

/// Returns the steps that were planned, if fewer were done, and the cost of training, if an hour has a price.
pub fn of_limits(
    state: &TrainState,
    planned_steps: u64,
    usd_per_hour: Option<f64>,
) -> impl Iterator<Item = (String, f64)> {
    let planned = (state.step < planned_steps).then_some((PLANNED_STEPS, planned_steps as f64));
    let cost = usd_per_hour.map(|usd| (COST, usd_in_all(usd, state.elapsed_seconds)));
    planned.into_iter().chain(cost).map(|(name, value)| (name.to_string(), value))
}

/// Writes the results by the part that their names begin with, and all of them.
pub fn save(output: &Path, results: &BTreeMap<String, f64>) -> Result<()> {
    let all = results.iter().map(|(name, value)| (name.clone(), *value));
    let (eval, others): (Vec<_>, Vec<_>) = all.partition(|(name, _)| name.starts_with("eval_"));
    let (test, train): (Vec<_>, Vec<_>) = others.into_iter().partition(|(name, _)| name.starts_with("test_"));
    write_results(output, "eval", &eval)?;
    if !test.is_empty() {
        write_results(output, "test", &test)?;
    }
    write_results(output, "train", &train)
}

/// Reads the results of an earlier sitting, NaN for those that were not measured; empty if there is no file.
pub fn read(output: &Path) -> Result<BTreeMap<String, f64>> {
    let path = output.join(ALL_RESULTS);
    if !fs::exists(&path) {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_text_capped(&path, CAP_BYTES)?;
    let values: BTreeMap<String, Value> = serde_json::from_str(&text)
        .map_err(|e| Problem::new(format!("is not a JSON object: {e}")).at(path.display()))?;
    Ok(values.into_iter().filter_map(|(name, value)| Some((name, number_of(&value)?))).collect())
}

/// The number of a result: NaN for null, and strings for numbers that are not finite.
fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Null => Some(f64::NAN),
        Value::String(text) => text.parse().ok().filter(|number: &f64| !number.is_finite()),
        other => other.as_f64(),
    }
}

/// Returns true if these are the results of a complete run: a crash may come between its last checkpoint and
/// its final model.
pub fn are_whole(results: &BTreeMap<String, f64>) -> bool {
    results.contains_key("eval_loss") && results.contains_key("train_runtime")
}

/// Removes the results of an earlier sitting. Results are written last, so a run without them is not
/// complete.
pub fn forget(output: &Path) -> Result<()> {
    fs::remove_file(&output.join(ALL_RESULTS))
}
