//! What changed between the configuration saved in a run folder and the one given now, and whether a run may
//! continue with it.
//!
//! Pure: it reads no folder; `train` decides when to ask.

use serde::Serialize;
use serde_json::Value as Json;

use crate::config::check::join;
use crate::config::show::saved;
use crate::error::Problem;
use crate::error::Problems;

/// Keys and tables whose change leaves every number of a run as it was.
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
    "evaluation",
    "training.gradient_checkpointing",
    "training.save_in_background",
    "training.save_total_limit",
    "training.save_total_bytes",
];

/// Those whose change leaves the numbers of the steps to come as they were, but not when there are
/// evaluations or an end.
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

/// How an update is cut into micro-batches: free as long as its rows stay the same.
const CUT: &[&str] = &[
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.train_batch_size",
];

/// How gradients travel: free, as the number of processes is.
const TRAVEL: &[&str] = &["distributed.wire", "distributed.sum"];

/// One key with two values; a value that is absent on one side is JSON `null`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Dotted path.
    pub path: String,
    /// Value in the saved configuration.
    pub old: Json,
    /// Value in the current one.
    pub new: Json,
}

impl Change {
    /// Whether a run may continue with it.
    pub fn is_free(&self) -> bool {
        self.keeps_numbers() || self.is_below(ENDS) || self.is_below(TRAVEL)
    }

    /// Whether a run with it has the same numbers from its first step to its end.
    pub fn keeps_numbers(&self) -> bool {
        self.is_below(OUTSIDE)
    }

    fn is_below(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.path == *key || self.path.starts_with(&format!("{key}.")))
    }
}

/// A configuration as it was saved with a checkpoint, where a key that was not there yet has the value by
/// which its run went: before there was `data.shuffle`, whole documents were shuffled.
pub fn with_former_defaults(mut saved: Json) -> Json {
    // Only pretraining has sources.
    let data = saved.get_mut("data").and_then(Json::as_object_mut);
    if let Some(data) = data.filter(|data| data.contains_key("sources")) {
        data.entry("shuffle").or_insert_with(|| "documents".into());
    }
    saved
}

/// Every key that differs, in the order of the structs.
pub fn diff<T: Serialize>(before: &T, current: &T) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", &saved(before), &saved(current), &mut changes);
    changes
}

/// The changes that a resumed run may take on (worth a note); an error naming all that it may not.
pub fn compare_for_resume<T: Serialize>(before: &T, current: &T) -> Result<Vec<Change>, Problems> {
    let rows = [before, current].map(|config| rows_per_update(&saved(config)));
    let keeps_rows = rows[0].is_some() && rows[0] == rows[1];
    let is_free = |change: &Change| change.is_free() || keeps_rows && CUT.contains(&change.path.as_str());
    let (free, fixed): (Vec<_>, Vec<_>) = diff(before, current).into_iter().partition(is_free);
    if fixed.is_empty() { Ok(free) } else { Err(Problems(fixed.iter().map(problem).collect())) }
}

/// Rows of an update; `None` where phases or a ramp give the updates different ones.
fn rows_per_update(config: &Json) -> Option<u64> {
    let training = &config["training"];
    let (phases, ramp_steps) =
        (training["phases"].as_array()?, training["batch_size_ramp"]["steps"].as_u64()?);
    if !phases.is_empty() || ramp_steps > 0 {
        return None;
    }
    match training["per_device_train_batch_size"].as_u64() {
        Some(rows) => rows.checked_mul(training["gradient_accumulation_steps"].as_u64()?),
        None => training["train_batch_size"].as_u64(),
    }
}

fn problem(change: &Change) -> Problem {
    let text = |value: &Json| if value.is_null() { "absent".to_string() } else { format!("`{value}`") };
    Problem::usage(format!("was {} when this run began and is {} now", text(&change.old), text(&change.new)))
        .at(&change.path)
        .hint("restore the value to continue this run, or start a new one in another `run.output_dir`")
}

fn compare(path: &str, old: &Json, new: &Json, changes: &mut Vec<Change>) {
    // A list of tables that has kept its length is compared table by table.
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
