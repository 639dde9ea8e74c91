//! Reads the tasks that models are compared on: a list of fine-tuning configurations without a model, in one
//! file.
//!
//! Keys outside of the list are defaults for all tasks.

use std::path::Path;

use serde::Serialize;

use crate::merge::merged;
use crate::overrides::Override;
use crate::protocol::{ListKeys, ProtocolTask};
use crate::shape::{LIST_KEYS, name_of, quoted};
use crate::suggest::closest;
use crate::tree::{Entry, Node, Place, Value, shortened};
use crate::{FinetuneConfig, Goal, load, profiles, protocol, variables};
use base::error::{Problem, Problems};
use base::scores::Metric;

/// The seeds of a comparison whose file names none. With one seed alone, chance could not be estimated.
const DEFAULT_SEEDS: [u64; 3] = [1, 2, 3];

const SHAPE: &str = "write `tasks:`, and below it a `- name: ...` with its keys for each task";

/// One task that models are compared on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedTask {
    /// Name in tables and of folders; unique within a file.
    pub name: String,
    /// The score that is compared.
    pub metric: Metric,
    /// The seeds that each model is trained with.
    pub seeds: Vec<u64>,
    /// The protocol of the list, with what it adds to this task; absent if the list follows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolTask>,
    /// The configuration; its `model` is a placeholder that the comparison replaces, and it has no seeds.
    pub config: FinetuneConfig,
}

/// Reads a file of tasks; reports all problems of the first task that has any. Later overrides win.
pub fn load_tasks(path: &Path, overrides: &[Override]) -> Result<Vec<NamedTask>, Problems> {
    let root = load::read(path, overrides)?;
    tasks_of(path, root, overrides)
}

/// Returns true if a file has a list of tasks.
pub(super) fn has_tasks(root: &Node) -> bool {
    root.entries().iter().any(|entry| entry.key == "tasks")
}

/// Like [`load_tasks`], for a file that was already read.
pub(super) fn tasks_of(
    path: &Path,
    mut base: Node,
    overrides: &[Override],
) -> Result<Vec<NamedTask>, Problems> {
    profiles::remove_keys(&mut base, &[&["tasks", "metric"][..], &LIST_KEYS].concat());
    let (list_keys, overrides) = ListKeys::take(&mut base, overrides)?;
    if overrides.iter().any(|one| one.key() == "run.output_dir") {
        let problem = Problem::usage("a comparison has one folder for all tasks").at("--set run.output_dir");
        return Err(only(problem.hint("name it with `--output-dir`")));
    }
    let Some(list) = base.take("tasks") else {
        return Err(refuse(&base.place, "there is no list `tasks`", SHAPE));
    };
    let Value::List(items) = list.node.value else {
        let message = format!("`tasks` wants a list, not {}", list.node.value.described());
        return Err(refuse(&list.place, message, SHAPE));
    };
    if items.is_empty() {
        return Err(refuse(&list.place, "`tasks` is empty", SHAPE));
    }
    let mut tasks: Vec<NamedTask> = Vec::new();
    for mut item in items {
        let at = item.place.clone();
        let Some(mut entry) = item.take("name") else {
            return Err(refuse(&at, "a task has no `name`", "add `name: sst2`, or what it is"));
        };
        variables::fill_at_once(&mut entry.node, "name").map_err(only)?;
        let Some(name) = entry.node.value.text().filter(|name| !name.trim().is_empty()) else {
            let message = format!("`name` wants a text, not {}", entry.node.value.described());
            return Err(refuse(&entry.place, message, "put it in quotes"));
        };
        let name = name.to_string();
        if tasks.iter().any(|other| other.name == name) {
            let message = format!("two tasks are called `{}`", shortened(&name));
            return Err(refuse(&at, message, "give each a name of its own"));
        }
        let mut keys = item.entries().iter().chain(base.entries());
        if let Some(model) = keys.find(|entry| name_of(&entry.key) == "model") {
            let message = "`model` is named by `--models`, for all tasks";
            return Err(refuse(&model.place, message, "remove it"));
        }
        let metric = item.take("metric").or_else(|| base.clone().take("metric"));
        let mut whole = merged(base.clone(), item);
        whole.take("metric");
        let mut all = vec![Override::placed("--models", "model", "each of --models")];
        all.extend_from_slice(&overrides);
        if let Some(protocol) = list_keys.protocol {
            whole = protocol.under(whole, &overrides);
        }
        let mut config = load::finetune_of(Some((path, whole)), &all)?.config;
        let mut seeds = std::mem::take(&mut config.seeds);
        let protocol = follow(&list_keys, &config, &mut seeds, metric.as_ref(), &name, &at)?;
        let metric = match metric {
            None => {
                let scored = list_keys.protocol.and_then(|protocol| protocol.metrics(config.goal()));
                scored.unwrap_or(config.goal().metrics())[0]
            }
            Some(mut entry) => {
                variables::fill_at_once(&mut entry.node, "metric").map_err(only)?;
                metric_of(&entry.node.value, config.goal())
                    .map_err(|problem| only(problem.at(entry.place.shown())))?
            }
        };
        tasks.push(NamedTask { name, metric, seeds, protocol, config });
    }
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    list_keys.require_published(&names, &list.place)?;
    Ok(tasks)
}

/// Returns what the protocol of the list adds to a task, and fills in its seeds. Refuses keys that do not go
/// with the protocol, or that only a protocol has.
fn follow(
    list_keys: &ListKeys,
    config: &FinetuneConfig,
    seeds: &mut Vec<u64>,
    metric: Option<&Entry>,
    name: &str,
    at: &Place,
) -> Result<Option<ProtocolTask>, Problems> {
    let Some(protocol) = list_keys.protocol else {
        protocol::refuse_without(config, at)?;
        if seeds.is_empty() {
            *seeds = DEFAULT_SEEDS.to_vec();
        }
        return Ok(None);
    };
    if let Some(metric) = metric {
        let message = "`metric` is given, and the protocol has its own scores";
        return Err(refuse(&metric.place, message, "remove it"));
    }
    if !seeds.is_empty() && list_keys.iterations.is_some() {
        return Err(refuse(at, "`seeds` and `iterations` are both given", "keep one of the two"));
    }
    if seeds.is_empty() {
        *seeds = protocol.seeds(list_keys.iterations);
    }
    let metrics = protocol.require(config, at)?;
    let departures = protocol.departures(config, seeds);
    let published = list_keys.published(name, metrics, at)?;
    Ok(Some(ProtocolTask { protocol, departures, published }))
}

fn only(problem: Problem) -> Problems {
    Problems(vec![problem])
}

fn refuse(place: &Place, message: impl Into<String>, hint: &str) -> Problems {
    only(Problem::usage(message).at(place.shown()).hint(hint))
}

fn metric_of(value: &Value, goal: Goal) -> Result<Metric, Problem> {
    let named = goal.metrics().iter().find(|metric| value.text() == Some(metric.name()));
    if let Some(metric) = named {
        return Ok(*metric);
    }
    let names: Vec<&str> = goal.metrics().iter().map(|metric| metric.name()).collect();
    let near = value.text().and_then(|text| closest(text, &names));
    let hint = match near {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("this task has {}", quoted(&names)),
    };
    Err(Problem::usage(format!("`metric` is {}, which this task does not have", value.described()))
        .hint(hint))
}

#[cfg(test)]
mod tests;
