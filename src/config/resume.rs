//! Compares the configuration saved in a run folder with the current one, and decides if the run may continue
//! with the changes.
//!
//! Reads no files; `train` calls it.

use serde::Serialize;
use serde_json::Value as Json;

use crate::dotted::join;
use crate::facts;
use crate::on_resume::OnResume;
use crate::show::saved;
use base::error::{Problem, Problems};

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
        self.on_resume().is_some() && !self.splits_updates()
    }

    /// Returns true if a run with this change has the same numbers from its first step to its end.
    pub fn keeps_numbers(&self) -> bool {
        self.on_resume() == Some(OnResume::Free)
    }

    /// Returns true if the change only splits updates into micro-batches in another way, if they have the same
    /// rows.
    pub(crate) fn splits_updates(&self) -> bool {
        self.on_resume() == Some(OnResume::Split)
    }

    fn on_resume(&self) -> Option<OnResume> {
        facts::nearest(&self.path, |facts| facts.on_resume)
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
        .partition(|change| change.is_free() || keeps_rows && change.splits_updates());
    if fixed.is_empty() { Ok(free) } else { Err(Problems(fixed.iter().map(problem).collect())) }
}

/// Refuses changes of the length of a complete run with this configuration. Its learning rate has ended: more
/// steps would raise the rate once more, and with fewer steps the scores of the run would be those of another
/// length. Only a run with a constant rate may take more steps.
pub fn refuse_other_length(changes: &[Change], config: &Json) -> Result<(), Problems> {
    let schedule = config["training"]["lr_scheduler_type"].as_str();
    let is_constant = matches!(schedule, Some("constant" | "constant_with_warmup"));
    let lengths = changes.iter().filter(|change| {
        change.on_resume() == Some(OnResume::Length) && !(is_constant && change.is_larger())
    });
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
