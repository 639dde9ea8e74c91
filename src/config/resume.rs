//! Compares the configuration saved in a run folder with the current one, and decides if the run may continue
//! with the changes.
//!
//! Reads no files; `train` calls it.

use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;

use crate::check::join;
use crate::show::saved;
use crate::variables::join_path;
use base::error::{Problem, Problems};

/// Keys and tables whose change does not affect any number of a run.
const OUTSIDE: &[&str] = &[
    "run.output_dir",
    "run.device",
    "run.threads",
    "run.usd_per_hour",
    "run.tensorboard",
    "run.trackers",
    "run.prometheus_dir",
    "run.notify_command",
    "run.sample_text",
    "runs_at_once",
    "run.upload_to",
    "run.stop_within",
    "cache",
    "distributed.timeout",
    "distributed.overlap",
    "distributed.shard_optimizer",
    "distributed.check_replicas_steps",
    "data.loader_workers",
    "data.deduplication.memory_bytes",
    "data.prepared_dir",
    "data.keep_documents",
    "data.save_text",
    "evaluation",
    "training.gradient_checkpointing",
    "training.save_in_background",
    "training.save_total_limit",
    "training.save_total_bytes",
];

/// Keys whose change does not affect the numbers of steps, only when the run evaluates, saves, logs or ends.
const ENDS: &[&str] = &[
    "training.max_steps",
    "training.num_train_epochs",
    "training.max_train_time",
    "run.budget_usd",
    "run.deadline",
    "training.per_device_eval_batch_size",
    "training.logging_steps",
    "training.eval_steps",
    "training.save_steps",
    "training.early_stopping_patience",
    "training.load_best_model_at_end",
];

/// Keys that set the length of a run, and with it the learning rate of each step.
const LENGTH: &[&str] = &["training.max_steps", "training.num_train_epochs"];

/// Keys that split an update into micro-batches: free to change as long as an update has the same number of
/// rows.
pub(super) const CUT: &[&str] = &[
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.train_batch_size",
];

/// Keys of the all-reduce of gradients: free to change, like the number of processes.
const TRAVEL: &[&str] = &["distributed.wire", "distributed.sum"];

/// One key with two values; a value that is absent on one side is JSON `null`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Dotted path of the key.
    pub path: String,
    /// Value in the saved configuration.
    pub old: Json,
    /// Value in the current one.
    pub new: Json,
}

impl Change {
    /// Returns true if the value is a larger number than before.
    fn is_larger(&self) -> bool {
        self.old.as_f64().zip(self.new.as_f64()).is_some_and(|(old, new)| new > old)
    }

    /// Returns true if a run may continue with this change.
    pub fn is_free(&self) -> bool {
        self.keeps_numbers() || self.is_below(ENDS) || self.is_below(TRAVEL)
    }

    /// Returns true if a run with this change has the same numbers from its first step to its end.
    pub fn keeps_numbers(&self) -> bool {
        self.is_below(OUTSIDE)
    }

    fn is_below(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.path == *key || self.path.starts_with(&format!("{key}.")))
    }
}

/// Adds keys to a saved configuration that did not exist when it was saved, with the values that its run
/// used: before `data.shuffle` existed, whole documents were shuffled.
pub fn with_former_defaults(mut saved: Json) -> Json {
    // Only pretraining has sources.
    let data = saved.get_mut("data").and_then(Json::as_object_mut);
    if let Some(data) = data.filter(|data| data.contains_key("sources")) {
        data.entry("shuffle").or_insert_with(|| "documents".into());
    }
    saved
}

/// Returns the configuration of the run in a folder `seed-N`, given that of several seeds: it names only seed
/// `N`, and its folders. Earlier versions saved the configuration of all seeds in the folder of each. A
/// configuration of a single run is returned as it is.
pub fn for_seed_folder(mut saved: Json, folder: &Path) -> Json {
    let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some(seed) = name.strip_prefix("seed-").and_then(|seed| seed.parse::<u64>().ok()) else {
        return saved;
    };
    let seeds = saved.get("seeds").and_then(Json::as_array);
    if !seeds.is_some_and(|seeds| seeds.len() > 1 && seeds.contains(&Json::from(seed))) {
        return saved;
    }
    saved["seeds"] = Json::from(vec![seed]);
    for key in ["output_dir", "upload_to"] {
        if let Some(Json::String(place)) = saved.get_mut("run").and_then(|run| run.get_mut(key)) {
            *place = join_path(place, name);
        }
    }
    saved
}

/// Returns every key that differs, in the order of the structs.
pub fn diff<T: Serialize>(before: &T, current: &T) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", &saved(before), &saved(current), &mut changes);
    changes
}

/// Returns the changes with which a resumed run may continue, for a note; an error that names all others.
pub fn compare_for_resume<T: Serialize>(before: &T, current: &T) -> Result<Vec<Change>, Problems> {
    let rows = [before, current].map(|config| rows_per_update(&saved(config)));
    let keeps_rows = rows[0].is_some() && rows[0] == rows[1];
    let (free, fixed): (Vec<_>, Vec<_>) = diff(before, current)
        .into_iter()
        .partition(|change| change.is_free() || keeps_rows && CUT.contains(&change.path.as_str()));
    if fixed.is_empty() { Ok(free) } else { Err(Problems(fixed.iter().map(problem).collect())) }
}

/// Refuses changes of the length of a complete run with this configuration. Its learning rate has ended: more
/// steps would raise the rate once more, and with fewer steps the scores of the run would be those of another
/// length. Only a run with a constant rate may take more steps.
pub fn refuse_other_length(changes: &[Change], config: &Json) -> Result<(), Problems> {
    let schedule = config["training"]["lr_scheduler_type"].as_str();
    let is_constant = matches!(schedule, Some("constant" | "constant_with_warmup"));
    let lengths = changes
        .iter()
        .filter(|change| LENGTH.contains(&change.path.as_str()) && !(is_constant && change.is_larger()));
    let problems: Vec<Problem> = lengths
        .map(|change| {
            Problem::usage(format!(
                "was {} in the complete run of this folder and is {} now",
                shown(&change.old),
                shown(&change.new)
            ))
            .at(&change.path)
            .hint("choose another `--output-dir` for a run of this length, or restore the value to see the results")
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Returns the rows of an update; `None` if phases or a ramp change their number.
fn rows_per_update(config: &Json) -> Option<u64> {
    let training = &config["training"];
    let phases = training["phases"].as_array()?;
    let ramp_steps = training["batch_size_ramp"]["steps"].as_u64()?;
    if !phases.is_empty() || ramp_steps > 0 {
        return None;
    }
    match training["per_device_train_batch_size"].as_u64() {
        Some(rows) => rows.checked_mul(training["gradient_accumulation_steps"].as_u64()?),
        None => training["train_batch_size"].as_u64(),
    }
}

fn problem(change: &Change) -> Problem {
    Problem::usage(format!(
        "was {} when this run began and is {} now",
        shown(&change.old),
        shown(&change.new)
    ))
    .at(&change.path)
    .hint("restore the value to continue this run, or start a new one in another `run.output_dir`")
}

/// Returns the value of one side of a change for a message.
pub(super) fn shown(value: &Json) -> String {
    if value.is_null() { "absent".to_string() } else { format!("`{value}`") }
}

fn compare(path: &str, old: &Json, new: &Json, changes: &mut Vec<Change>) {
    // Lists of tables of the same length are compared table by table.
    if let (Json::Array(before), Json::Array(after)) = (old, new)
        && before.len() == after.len()
        && before.iter().chain(after).all(Json::is_object)
    {
        for (index, (old, new)) in before.iter().zip(after).enumerate() {
            compare(&join(path, &index.to_string()), old, new, changes);
        }
        return;
    }
    let (Json::Object(before), Json::Object(after)) = (old, new) else {
        if old != new {
            changes.push(Change { path: path.to_string(), old: old.clone(), new: new.clone() });
        }
        return;
    };
    for (key, value) in after {
        compare(&join(path, key), before.get(key).unwrap_or(&Json::Null), value, changes);
    }
    for (key, value) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        compare(&join(path, key), value, &Json::Null, changes);
    }
}
