//! Reads a run folder, file by file. A damaged file is a gap of the report; the other files are used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::checkpoint::CheckpointStore;
use crate::corpus::report::Report;
use crate::error::Problem;
use crate::prepare::read_report;
use crate::report::predictions;
use crate::report::predictions::Predictions;
use crate::report::state;
use crate::report::state::State;
use crate::report::thinned::{Point, Thinned};
use crate::report::units::Unit;
use crate::telemetry::MetricsLog;
use crate::train::checkpoint_files::INPUTS;
use crate::train::results;
use crate::train::run_folder::{MACHINE, METRICS};
use crate::{config, fs};

/// Largest configuration or `machine.json` that is read, in bytes; real ones are much smaller.
const CAP_BYTES: u64 = 1 << 20;

/// Largest `trainer_state.json` that is read, in bytes: more than the log of a long run has.
const STATE_CAP_BYTES: u64 = 256 << 20;

/// A run as read from its folder.
#[derive(Debug)]
pub struct Run {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) state: State,
    /// Seconds since the last record was written.
    pub(super) age_seconds: Option<u64>,
    /// Number of updates of the whole run, if it is known.
    pub(super) total_steps: Option<u64>,
    /// Number of updates that are done.
    pub(super) step: Option<u64>,
    /// Content of `all_results.json`.
    pub(super) results: BTreeMap<String, f64>,
    /// Values of `metrics.jsonl` by tag.
    pub(super) curves: BTreeMap<String, Thinned>,
    /// Dotted keys and values of the resolved configuration.
    pub(super) keys: Vec<(String, String)>,
    /// Text of `config.yaml`, the resolved configuration.
    pub(super) yaml: String,
    /// Fingerprint of the tokenizer of a pretraining run, from its newest checkpoint.
    pub(super) tokenizer: Option<String>,
    /// Content of `machine.json`, the machine that the run was computed on.
    pub(super) machine: Map<String, Value>,
    /// Folder of the prepared corpus, and its report.
    pub(super) corpus: Option<(PathBuf, Report)>,
    /// Predictions for the evaluation examples.
    pub(super) predictions: Option<Predictions>,
    /// Folder of the step in which training diverged.
    pub(super) diverged: Option<PathBuf>,
    /// Errors of files that could not be read.
    pub(super) gaps: Vec<String>,
}

/// Collects the errors of files that could not be read.
struct Gaps(Vec<String>);

impl Gaps {
    /// Returns the value, or notes the error and returns the default.
    fn or_default<T: Default>(&mut self, read: Result<T>) -> T {
        read.unwrap_or_else(|e| {
            self.0.push(format!("{e:#}"));
            T::default()
        })
    }
}

impl Run {
    /// Reads the folder of a run.
    ///
    /// # Errors
    /// Returns an error only if the folder cannot be listed.
    pub fn read(path: &Path) -> Result<Self> {
        let mut gaps = Gaps(Vec::new());
        let results = gaps.or_default(results::read(path));
        let Records { curves, step, damaged } = gaps.or_default(records(&path.join(METRICS)));
        if damaged > 0 {
            let place = path.join(METRICS);
            gaps.0.push(format!("{}: lines that are no records, left out: {damaged}", place.display()));
        }
        let file = path.join("config.yaml");
        let yaml = gaps.or_default(fs::read_text_capped(&file, CAP_BYTES));
        let keys = gaps.or_default(config::flat(&yaml, &file.display().to_string()));
        let age = fs::modified(&path.join(METRICS)).ok();
        let age = age.and_then(|time| SystemTime::now().duration_since(time).ok());
        let mut run = Self {
            path: path.to_path_buf(),
            name: path.display().to_string(),
            state: State::read(path, &results)?,
            age_seconds: age.map(|age| age.as_secs()),
            total_steps: None,
            step,
            results,
            curves,
            keys,
            yaml,
            tokenizer: tokenizer_of_checkpoint(path),
            machine: gaps.or_default(machine(&path.join(MACHINE))),
            corpus: None,
            predictions: gaps.or_default(predictions::read(path)),
            diverged: state::diverged_folder(path)?,
            gaps: Vec::new(),
        };
        // Recorded where fewer steps were done.
        run.total_steps = run.result(results::PLANNED_STEPS).map(|steps| steps as u64);
        run.total_steps = run.total_steps.or_else(|| {
            run.key("training.max_steps").and_then(|steps| steps.parse().ok()).filter(|s| *s > 0)
        });
        run.total_steps = run.total_steps.or_else(|| steps_of_checkpoint(path));
        if let Some(folder) = run.corpus_folder() {
            run.corpus = gaps.or_default(read_report(&folder)).map(|report| (folder, report));
        }
        run.gaps = gaps.0;
        Ok(run)
    }

    /// Returns the value of a dotted key of the configuration; `None` for `null`.
    pub(super) fn key(&self, path: &str) -> Option<&str> {
        let found = self.keys.iter().find(|(key, _)| key == path);
        found.map(|(_, value)| value.as_str()).filter(|value| *value != "null")
    }

    /// Returns a score by its name without `eval_`: of the final model, else of the latest evaluation.
    pub(super) fn score(&self, name: &str) -> Option<f64> {
        self.result(&format!("eval_{name}")).or_else(|| self.latest(&format!("eval/{name}")))
    }

    /// The name of the loss on masked tokens.
    pub(super) fn token_loss(&self) -> &'static str {
        let parts = ["mlm_loss", "generator_loss"].into_iter();
        parts.clone().find(|name| self.score(name).is_some()).unwrap_or("loss")
    }

    /// True if `loss` is a weighted sum of several losses.
    pub(super) fn has_parts(&self) -> bool {
        self.token_loss() != "loss"
    }

    /// Returns a value of `all_results.json`.
    pub(super) fn result(&self, name: &str) -> Option<f64> {
        self.results.get(name).copied()
    }

    /// Returns the latest value of a tag.
    pub(super) fn latest(&self, tag: &str) -> Option<f64> {
        self.curves.get(tag)?.last()
    }

    /// Returns the names of all scores, without `eval_`.
    pub(super) fn score_names(&self) -> impl Iterator<Item = &str> {
        let of_results = self.results.keys().filter_map(|name| name.strip_prefix("eval_"));
        of_results.chain(self.curves.keys().filter_map(|tag| tag.strip_prefix("eval/")))
    }

    /// The folder of the prepared corpus: `data` in the run folder, else `data.prepared_dir`.
    fn corpus_folder(&self) -> Option<PathBuf> {
        let own = self.path.join("data");
        if fs::is_folder(&own) { Some(own) } else { self.key("data.prepared_dir").map(PathBuf::from) }
    }
}

/// Names each run by its path, without the folders and the words that all paths begin with.
pub fn name_all(runs: &mut [Run]) {
    let paths: Vec<Vec<String>> = runs
        .iter()
        .map(|run| fs::canonical(&run.path).iter().map(|part| part.to_string_lossy().into_owned()).collect())
        .collect();
    let shortest = paths.iter().map(Vec::len).min().unwrap_or(0);
    let shared = (0..shortest)
        .take_while(|&at| paths.iter().all(|path| at + 1 < path.len() && path[at] == paths[0][at]))
        .count();
    for (run, path) in runs.iter_mut().zip(&paths) {
        run.name = path[shared.min(path.len().saturating_sub(1))..].join("/");
    }
    let shared = shared_words(&runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>());
    for run in runs {
        run.name.drain(..shared);
    }
}

/// Length in bytes of the words that all names begin with, without the last of them, which often is the key
/// of a value that follows: `roberta-small-` in `roberta-small-lr-1` and `roberta-small-lr-2`.
fn shared_words(names: &[&str]) -> usize {
    let [first, others @ ..] = names else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let shared = others.iter().fold(first.len(), |shared, other| {
        first.bytes().zip(other.bytes()).take(shared).take_while(|pair| pair.0 == pair.1).count()
    });
    let words: Vec<usize> = first
        .bytes()
        .take(shared)
        .enumerate()
        .filter(|(_, byte)| *byte == b'-')
        .map(|(at, _)| at + 1)
        .collect();
    words.iter().rev().nth(1).copied().unwrap_or(0)
}

/// Content of `metrics.jsonl`.
#[derive(Default)]
struct Records {
    curves: BTreeMap<String, Thinned>,
    /// Step of the last record.
    step: Option<u64>,
    /// Number of lines that are not records.
    damaged: u64,
}

/// Reads the records of a run; without a file there are none.
fn records(path: &Path) -> Result<Records> {
    let mut records = Records::default();
    let mut seconds = None;
    if !fs::exists(path) {
        return Ok(records);
    }
    records.damaged = MetricsLog::each_record(path, |step, values| {
        records.step = Some(step);
        if let Some((_, elapsed)) = values.iter().find(|(tag, _)| tag == ELAPSED) {
            seconds = Some(*elapsed);
        }
        for (tag, value) in values.iter().filter(|(tag, value)| tag != "step" && value.is_finite()) {
            let point = Point { step: step as f64, seconds, value: *value };
            match records.curves.get_mut(tag) {
                Some(curve) => curve.push(point),
                None => records.curves.entry(tag.clone()).or_default().push(point),
            }
        }
    })?;
    Ok(records)
}

/// Tag of the training time in seconds.
pub(super) const ELAPSED: &str = "perf/elapsed_seconds";

/// Reads `machine.json`; without a file the map is empty.
fn machine(path: &Path) -> Result<Map<String, Value>> {
    if !fs::exists(path) {
        return Ok(Map::new());
    }
    let text = fs::read_text_capped(path, CAP_BYTES)?;
    Ok(serde_json::from_str(&text)
        .map_err(|e| Problem::new(format!("is not a JSON object: {e}")).at(path.display()))?)
}

/// Reads the planned number of updates of the whole run from the newest checkpoint.
fn steps_of_checkpoint(folder: &Path) -> Option<u64> {
    let state = json_of_checkpoint(folder, "trainer_state.json", STATE_CAP_BYTES)?;
    state.get("max_steps")?.as_u64().filter(|steps| *steps > 0)
}

/// Reads the fingerprint of the tokenizer from the newest checkpoint of a pretraining run.
fn tokenizer_of_checkpoint(folder: &Path) -> Option<String> {
    let inputs = json_of_checkpoint(folder, INPUTS, CAP_BYTES)?;
    inputs.get("tokenizer")?.as_str().map(str::to_string)
}

/// Reads a JSON file of the newest checkpoint; `None` if it is missing or broken.
fn json_of_checkpoint(folder: &Path, name: &str, cap_bytes: u64) -> Option<Value> {
    let store = CheckpointStore::new(folder);
    let newest = store.path_of(*store.steps().ok()?.last()?);
    serde_json::from_str(&fs::read_text_capped(&newest.join(name), cap_bytes).ok()?).ok()
}

/// Returns the unit of a tag or score of these runs: the loss of a regression is a squared distance.
pub(super) fn unit_of(runs: &[Run], name: &str) -> Unit {
    let unit = Unit::from_name(name);
    let is_distance = unit == Unit::Nats && runs.iter().all(|run| run.key("task") == Some("regression"));
    if is_distance { Unit::Distance } else { unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_word_before_their_first_difference() {
        assert_eq!(
            shared_words(&["roberta-small-lr-1e-3-a", "roberta-small-lr-3e-3-a"]),
            "roberta-small-".len()
        );
        for names in [&["seed-1", "seed-2"][..], &["lr=1", "lr=3"], &["a-b-c-d"], &["ä-x", "ö-x"], &[]] {
            assert_eq!(shared_words(names), 0, "{names:?}");
        }
    }
}
