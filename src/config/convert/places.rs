//! Finds the key for each argument. `foreign.rs` maps single keys; this module handles arguments that depend
//! on their value or on other arguments.

use serde_json::Value as Json;

use crate::convert::arguments::{Arguments, is_off_or_empty};
use crate::convert::{Draft, Purpose, corpus};
use crate::foreign::Elsewhere;
use crate::shape::{Shape, name_of};
use crate::{FinetuneTask, foreign};

/// Arguments that only run_mlm.py has.
const PRETRAINING_ONLY: [&str; 6] = [
    "mlm_probability",
    "line_by_line",
    "config_overrides",
    "model_type",
    "validation_split_percentage",
    "whole_word_mask",
];

/// Arguments that only run_ner.py has.
const TAGGING_ONLY: [&str; 2] = ["label_all_tokens", "return_entity_level_metrics"];

/// Arguments that set when something is done, with the key here for the number of steps.
const STRATEGIES: [(&str, &str); 4] = [
    ("eval_strategy", "training.eval_steps"),
    ("evaluation_strategy", "training.eval_steps"),
    ("save_strategy", "training.save_steps"),
    ("logging_strategy", "training.logging_steps"),
];

/// Returns the purpose of the arguments; adds a note if it is a guess.
pub(super) fn purpose_of(arguments: &Arguments, draft: &mut Draft) -> Purpose {
    let task = arguments.text("task_name").map(str::to_lowercase);
    match task.as_deref() {
        Some("ner" | "pos" | "chunk") => Purpose::Finetune(FinetuneTask::TokenClassify),
        Some("stsb" | "sts-b") => Purpose::Finetune(FinetuneTask::Regression),
        Some(_) => Purpose::Finetune(FinetuneTask::Classify),
        None if arguments.has_any(&TAGGING_ONLY) => Purpose::Finetune(FinetuneTask::TokenClassify),
        None if arguments.has_any(&PRETRAINING_ONLY) => Purpose::Pretrain,
        None if arguments.is_on("do_regression") => Purpose::Finetune(FinetuneTask::Regression),
        None if arguments.has_any(&["task_name", "label_column_name", "max_train_samples"]) => {
            draft.notes.push("assumed: this is for `finetune --task classify`; `--for` says it".to_string());
            Purpose::Finetune(FinetuneTask::Classify)
        }
        None => {
            draft.notes.push("assumed: this is for `pretrain`; `--for` says it".to_string());
            Purpose::Pretrain
        }
    }
}

/// Adds the settings of all arguments to the draft.
pub(super) fn place(arguments: &Arguments, purpose: Purpose, shape: &Shape, draft: &mut Draft) {
    let taken = match purpose {
        Purpose::Pretrain => corpus::place(arguments, draft),
        Purpose::Finetune(task) => labelled(arguments, task, draft),
    };
    for (name, value) in arguments.all() {
        if taken.contains(&name) || STRATEGIES.iter().any(|(key, _)| *key == name) {
            continue;
        }
        if name == "report_to" {
            report_to(value, draft);
        } else if name == "logging_dir" && !is_off_or_empty(value) {
            draft.without_place(name, value, "TensorBoard's events are in `runs` below `run.output_dir`");
        } else if is_off_or_empty(value) {
            draft.off.push(name.to_string());
        } else {
            one(name, value, shape, draft);
        }
    }
    merge_repeated(draft);
    if draft.settings.iter().all(|setting| setting.path != "precision.compute") {
        let why = "neither `fp16` nor `bf16` is on; `auto` takes the fastest type of the machine";
        draft.assume("precision.compute", "f32", why);
    }
    for (name, path) in STRATEGIES {
        if let Some(value) = arguments.get(name) {
            strategy(name, path, value, draft);
        }
    }
}

/// Converts an argument that becomes at most one key.
fn one(name: &str, value: &Json, shape: &Shape, draft: &mut Draft) {
    let places = shape.find(name_of(name));
    match (places.as_slice(), foreign::key(name)) {
        ([path], _) => draft.set(path, own_value(path, value), name),
        (_, Some(Elsewhere::Key(path, more))) if has_path(shape, path) => {
            draft.set(path, own_value(path, value), name);
            if !more.is_empty() {
                draft.notes.push(format!("`{name}` is `{path}`{more}"));
            }
        }
        (_, Some(Elsewhere::Value(path, own))) if has_path(shape, path) && *value == Json::Bool(true) => {
            draft.set(path, own, name);
        }
        (_, Some(Elsewhere::Nowhere(why))) => draft.without_place(name, value, why),
        (_, Some(known)) => draft.without_place(name, value, &known.hint()),
        (_, None) => draft.unknown.push(name.to_string()),
    }
}

/// Returns true if a shape has a key with this dotted path.
fn has_path(shape: &Shape, path: &str) -> bool {
    path.split('.').try_fold(shape, |here, key| Some(&here.field(key)?.shape)).is_some()
}

/// Returns the value of the key at `path` under the name that it has here.
fn own_value(path: &str, value: &Json) -> Json {
    let own = value.as_str().and_then(|text| foreign::value(path, text));
    own.map_or_else(|| value.clone(), Json::from)
}

/// Keeps one of two arguments for the same key, such as `warmup_steps` and `warmup_ratio`: the last one that
/// is not 0.
fn merge_repeated(draft: &mut Draft) {
    let settings = std::mem::take(&mut draft.settings);
    for setting in settings {
        match draft.settings.iter().position(|other| other.path == setting.path) {
            None => draft.settings.push(setting),
            Some(at) => {
                let lost = if is_zero(&setting.value) {
                    setting
                } else {
                    std::mem::replace(&mut draft.settings[at], setting)
                };
                let name = lost.from.unwrap_or_default();
                let kept = draft.settings[at].from.clone();
                if !is_zero(&lost.value) {
                    let kept = kept.unwrap_or_default();
                    draft
                        .notes
                        .push(format!("`{name}` and `{kept}` are both `{}`: the latter is kept", lost.path));
                }
            }
        }
    }
}

fn is_zero(value: &str) -> bool {
    value.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// Converts a strategy, which sets when something is done: `steps` keeps the number of steps, `no` and any
/// other replace it by 0.
fn strategy(name: &str, path: &str, value: &Json, draft: &mut Draft) {
    let word = value.as_str().map(str::to_lowercase);
    if word.as_deref() == Some("steps") {
        return;
    }
    if word.as_deref() != Some("no") {
        let why = format!("here it is a number of steps, `{path}`; 0, which is taken, means only at the end");
        draft.without_place(name, value, &why);
    }
    draft.settings.retain(|setting| setting.path != path);
    draft.set(path, 0, name);
}

fn report_to(value: &Json, draft: &mut Draft) {
    let names: Vec<&str> = match value {
        Json::String(name) => vec![name.as_str()],
        Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let is_on = names.iter().any(|name| ["tensorboard", "all"].contains(name));
    draft.set("run.tensorboard", is_on, "report_to");
    let others: Vec<&str> =
        names.into_iter().filter(|name| !["tensorboard", "all", "none"].contains(name)).collect();
    if !others.is_empty() {
        let why = "metrics.jsonl and TensorBoard events are what is written";
        draft.without_place("report_to", &Json::from(others), why);
    }
}

/// Converts the files, the model and the task of fine-tuning; returns the names of the converted arguments.
fn labelled(arguments: &Arguments, task: FinetuneTask, draft: &mut Draft) -> Vec<&'static str> {
    let name = task.name();
    if arguments.get("task_name").is_some() {
        draft.set("task", name.as_str(), "task_name");
    } else {
        draft.assume("task", name.as_str(), "what the arguments look like");
    }
    if arguments.get("model_name_or_path").is_none() {
        draft.assume("model", "models/mine", "a model folder, to be named");
    }
    if arguments.get("train_file").is_none() {
        draft.assume("data.train_file", "train.csv", "labelled examples, to be named");
    }
    if arguments.get("validation_file").is_none() {
        draft.assume(
            "data.eval_fraction",
            0.1,
            "no `validation_file` is named: a tenth of the training examples",
        );
    }
    for name in ["dataset_name", "dataset_config_name"] {
        if let Some(value) = arguments.get(name) {
            let why = "download it, and name its files under `data.train_file` and `data.eval_file`";
            draft.without_place(name, value, why);
        }
    }
    if let Some(value) = arguments.get("test_file") {
        draft.without_place("test_file", value, "`mlmtrain evaluate --data FILE` scores the model on it");
    }
    for name in ["config_name", "tokenizer_name"] {
        if let Some(value) = arguments.get(name) {
            draft.without_place(name, value, "architecture and tokenizer are those of the model folder");
        }
    }
    let dataset = ["dataset_name", "dataset_config_name", "test_file"];
    [&["task_name", "do_regression", "config_name", "tokenizer_name"][..], &dataset].concat()
}
