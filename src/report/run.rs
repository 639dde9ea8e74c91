//! What a run folder holds, read file by file: a damaged one is a gap, and all others are told.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::Map;
use serde_json::Value;

use crate::checkpoint::CheckpointStore;
use crate::config;
use crate::corpus::report::Report;
use crate::error::Problem;
use crate::fs;
use crate::prepare::read_report;
use crate::report::predictions;
use crate::report::predictions::Predictions;
use crate::report::state::State;
use crate::report::thinned::Point;
use crate::report::thinned::Thinned;
use crate::telemetry::MetricsLog;
use crate::train::results;
use crate::train::run_folder::MACHINE;
use crate::train::run_folder::METRICS;

/// More than a configuration, or what a run says of its machine, ever takes.
const CAP_BYTES: u64 = 1 << 20;

/// More than the log of a long run takes.
const STATE_CAP_BYTES: u64 = 256 << 20;

/// A run, as its folder tells of it.
#[derive(Debug)]
pub struct Run {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) state: State,
    /// Seconds since the last record.
    pub(super) age_seconds: Option<u64>,
    /// Updates in all, where they are known.
    pub(super) total_steps: Option<u64>,
    /// Updates done.
    pub(super) step: Option<u64>,
    /// What `all_results.json` holds.
    pub(super) results: BTreeMap<String, f64>,
    /// By tag.
    pub(super) curves: BTreeMap<String, Thinned>,
    /// The resolved configuration: dotted keys and values.
    pub(super) keys: Vec<(String, String)>,
    /// The same as its file.
    pub(super) yaml: String,
    /// What it was computed on.
    pub(super) machine: Map<String, Value>,
    /// The folder of its prepared corpus, and the report of it.
    pub(super) corpus: Option<(PathBuf, Report)>,
    /// What it said of the evaluation examples.
    pub(super) said: Option<Predictions>,
    /// What could not be read.
    pub(super) gaps: Vec<String>,
}

/// What may be read, or a gap that says why not.
struct Gaps(Vec<String>);

impl Gaps {
    fn or_default<T: Default>(&mut self, read: Result<T>) -> T {
        read.unwrap_or_else(|e| {
            self.0.push(format!("{e:#}"));
            T::default()
        })
    }
}

impl Run {
    /// Reads the folder of a run. Only a folder that cannot be listed is an error.
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
            state: State::of(path, &results)?,
            age_seconds: age.map(|age| age.as_secs()),
            total_steps: None,
            step,
            results,
            curves,
            keys,
            yaml,
            machine: gaps.or_default(machine(&path.join(MACHINE))),
            corpus: None,
            said: gaps.or_default(predictions::read(path)),
            gaps: Vec::new(),
        };
        run.total_steps =
            run.key("training.max_steps").and_then(|steps| steps.parse().ok()).filter(|s| *s > 0);
        run.total_steps = run.total_steps.or_else(|| steps_of_checkpoint(path));
        if let Some(folder) = run.corpus_folder() {
            run.corpus = gaps.or_default(read_report(&folder)).map(|report| (folder, report));
        }
        run.gaps = gaps.0;
        Ok(run)
    }

    /// The value of a dotted key of the configuration; `None` for `null`.
    pub(super) fn key(&self, path: &str) -> Option<&str> {
        let found = self.keys.iter().find(|(key, _)| key == path);
        found.map(|(_, value)| value.as_str()).filter(|value| *value != "null")
    }

    /// A score by its name without `eval_`: of the final model, or of the latest evaluation.
    pub(super) fn score(&self, name: &str) -> Option<f64> {
        self.results.get(&format!("eval_{name}")).copied().or_else(|| self.latest(&format!("eval/{name}")))
    }

    /// The latest value of a tag.
    pub(super) fn latest(&self, tag: &str) -> Option<f64> {
        self.curves.get(tag)?.last()
    }

    /// The names of all scores, without `eval_`.
    pub(super) fn score_names(&self) -> impl Iterator<Item = &str> {
        let of_results = self.results.keys().filter_map(|name| name.strip_prefix("eval_"));
        of_results.chain(self.curves.keys().filter_map(|tag| tag.strip_prefix("eval/")))
    }

    fn corpus_folder(&self) -> Option<PathBuf> {
        let own = self.path.join("data");
        let elsewhere = || self.key("data.prepared_dir").map(PathBuf::from);
        if fs::is_folder(&own) { Some(own) } else { elsewhere() }
    }
}

/// Gives each run the shortest name that its path has among the others: what all paths begin with is left
/// out.
pub fn name_all(runs: &mut [Run]) {
    let paths: Vec<PathBuf> = runs.iter().map(|run| fs::canonical(&run.path)).collect();
    let parts = |path: &Path| path.iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let paths: Vec<Vec<String>> = paths.iter().map(|path| parts(path)).collect();
    let is_shared = |at: usize| paths.iter().all(|path| at + 1 < path.len() && path[at] == paths[0][at]);
    let shortest = paths.iter().map(Vec::len).min().unwrap_or(0);
    let shared = (0..shortest).take_while(|&at| is_shared(at)).count();
    for (run, path) in runs.iter_mut().zip(&paths) {
        run.name = path[shared.min(path.len().saturating_sub(1))..].join("/");
    }
}

/// What `metrics.jsonl` holds.
#[derive(Default)]
struct Records {
    curves: BTreeMap<String, Thinned>,
    /// Of the last record.
    step: Option<u64>,
    /// Lines without a record.
    damaged: u64,
}

/// The records of a run; none without a file.
fn records(path: &Path) -> Result<Records> {
    let (mut records, mut seconds) = (Records::default(), None);
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

/// The tag of the seconds since the beginning of a run.
pub(super) const ELAPSED: &str = "perf/elapsed_seconds";

fn machine(path: &Path) -> Result<Map<String, Value>> {
    if !fs::exists(path) {
        return Ok(Map::new());
    }
    let text = fs::read_text_capped(path, CAP_BYTES)?;
    let broken = |e| Problem::new(format!("is not a JSON object: {e}")).at(path.display());
    Ok(serde_json::from_str(&text).map_err(broken)?)
}

/// The updates that the newest checkpoint is to be trained for in all.
fn steps_of_checkpoint(folder: &Path) -> Option<u64> {
    let store = CheckpointStore::new(folder);
    let newest = store.path_of(*store.steps().ok()?.last()?);
    let text = fs::read_text_capped(&newest.join("trainer_state.json"), STATE_CAP_BYTES).ok()?;
    let state: Value = serde_json::from_str(&text).ok()?;
    state.get("max_steps")?.as_u64().filter(|steps| *steps > 0)
}
