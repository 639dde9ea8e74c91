//! Protocols of published comparisons: defaults for a list of tasks, the scores that are compared, and the
//! values of a list that depart from the protocol.
//!
//! Trains nothing: `compare` fine-tunes each task with the values that are filled in here.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::check::{Wrong, check};
use crate::merge::merged;
use crate::overrides::Override;
use crate::resume::diff;
use crate::shape::{LIST_KEYS, Shape, name_of, quoted};
use crate::tree::{Entry, Node, Place, Value, parse};
use crate::{FinetuneConfig, Goal, load, variables};
use base::error::{Problem, Problems};
use base::scores::Metric;

/// EuroEval's protocol for encoders. Keys that are not here have their usual default.
const EUROEVAL: &str = "\
run: {seed: 4242}
data: {bootstrap: true}
training:
  per_device_train_batch_size: auto
  train_batch_size: 32
  per_device_eval_batch_size: 32
  max_steps: 10000
  learning_rate: 2.0e-5
  warmup_steps: 100
  loss_spike_threshold: 0
  logging_steps: 30
  eval_steps: 30
  save_steps: 30
  save_total_limit: 1
  early_stopping_patience: 2
  metric_for_best_model: loss
  load_best_model_at_end: true
";

const EUROEVAL_ITERATIONS: u64 = 10;

/// The seed of EuroEval's first iteration; each further one adds 1.
const EUROEVAL_SEED: u64 = 4242;

/// EuroEval cuts texts where the model does; the limit keeps models for long texts comparable.
const LONGEST_SEQUENCE: usize = 512;

/// Keys of tasks that have a meaning in a protocol only.
const TASK_KEYS: [&str; 3] = ["test_file", "max_test_samples", "bootstrap"];

/// A published way to compare models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// EuroEval's, for encoders.
    Euroeval,
}

/// The protocol of a task, with published scores and departures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProtocolTask {
    /// The protocol.
    pub protocol: Protocol,
    /// Values that are not the protocol's.
    pub departures: Vec<Departure>,
    /// Published scores of other models on this task.
    pub published: Vec<PublishedScore>,
}

/// A value that departs from the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Departure {
    /// The dotted path of the key.
    pub key: String,
    /// The value in use.
    pub value: Json,
    /// The protocol's value.
    pub protocol: Json,
}

/// Published scores of a model on one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedScore {
    /// Name of the model.
    pub name: String,
    /// Publication of the scores, as a table shows it.
    pub source: String,
    /// Scores as published, mostly in percent, by the name of the metric.
    pub scores: BTreeMap<&'static str, f64>,
}

/// The keys of a list that are about its protocol.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListKeys {
    /// The protocol by which all tasks are trained and scored.
    pub(super) protocol: Option<Protocol>,
    /// The number of iterations, each with examples and a seed of its own.
    pub(super) iterations: Option<u32>,
    /// Published rows that are laid next to those of this comparison.
    published: Vec<Published>,
}

/// A published row, as a list of tasks has it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Published {
    /// Name of the model.
    name: String,
    /// Publication of the scores, as a table shows it.
    source: String,
    /// Its scores.
    scores: Vec<PublishedOnTask>,
}

/// One published score.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublishedOnTask {
    /// Name of the task in the list.
    task: String,
    /// Name of the metric.
    metric: String,
    /// The score in percent.
    score: f64,
}

impl ListKeys {
    /// Takes the keys of the protocol out of a list, and checks them. Returns the other overrides, too.
    pub(super) fn take(list: &mut Node, overrides: &[Override]) -> Result<(Self, Vec<Override>), Problems> {
        let mut own = Node::empty_table(list.place.clone());
        let taken: Vec<Entry> = LIST_KEYS.iter().filter_map(|key| list.take(key)).collect();
        own.value = Value::Table(taken);
        let (of_list, others): (Vec<&Override>, Vec<&Override>) =
            overrides.iter().partition(|one| LIST_KEYS.contains(&one.first_key()));
        let shape = Shape::from_struct::<Self>();
        let mut wrong: Vec<Wrong> =
            of_list.iter().filter_map(|one| one.apply(&mut own, &shape).err()).collect();
        let mut unfilled = Vec::new();
        variables::fill(&mut own, "", &variables::environment, &mut unfilled);
        wrong.extend(unfilled.into_iter().map(|(_, wrong)| wrong));
        let (json, checked) = check(&own, &shape);
        wrong.extend(checked.problems);
        if wrong.is_empty()
            && let Ok(keys) = serde_json::from_value::<Self>(json)
        {
            keys.require_protocol(&own.place)?;
            return Ok((keys, others.into_iter().cloned().collect()));
        }
        Err(Problems(wrong.into_iter().map(Wrong::problem).collect()))
    }

    fn require_protocol(&self, place: &Place) -> Result<(), Problems> {
        let given = [("iterations", self.iterations.is_some()), ("published", !self.published.is_empty())];
        match given.into_iter().find(|(_, is_given)| *is_given && self.protocol.is_none()) {
            None if self.iterations == Some(0) => {
                Err(refuse(place, "`iterations` is 0", "train each model once at least"))
            }
            None => Ok(()),
            Some((key, _)) => Err(refuse(
                place,
                format!("`{key}` is given, and the list follows no protocol"),
                "add `protocol: euroeval`, or remove it",
            )),
        }
    }

    /// Returns the published scores on the task `name`.
    ///
    /// # Errors
    /// If a score has a metric that the protocol does not have for this task.
    pub(super) fn published(
        &self,
        name: &str,
        metrics: &[Metric],
        place: &Place,
    ) -> Result<Vec<PublishedScore>, Problems> {
        let mut rows = Vec::new();
        for row in &self.published {
            let mut scores = BTreeMap::new();
            for one in row.scores.iter().filter(|one| one.task == name) {
                let Some(metric) = metrics.iter().find(|metric| metric.name() == one.metric) else {
                    let names: Vec<&str> = metrics.iter().map(|metric| metric.name()).collect();
                    let message = format!(
                        "`published` has `{}` of `{}` on `{name}`, which the protocol does not score there",
                        one.metric, row.name
                    );
                    return Err(refuse(place, message, &format!("this task has {}", quoted(&names))));
                };
                scores.insert(metric.name(), one.score);
            }
            if !scores.is_empty() {
                rows.push(PublishedScore { name: row.name.clone(), source: row.source.clone(), scores });
            }
        }
        Ok(rows)
    }

    /// Refuses published rows that have no score of any of these tasks: their names are probably mistyped.
    pub(super) fn require_published(&self, tasks: &[&str], place: &Place) -> Result<(), Problems> {
        let mut scores = self.published.iter().flat_map(|row| &row.scores);
        if self.published.is_empty() || scores.any(|one| tasks.contains(&one.task.as_str())) {
            return Ok(());
        }
        let message = "no score in `published` is of a task of this list";
        Err(refuse(place, message, &format!("the tasks are {}", quoted(tasks))))
    }
}

impl Protocol {
    /// The scores of a task, the most important first; `None` if the protocol has no such task.
    pub fn metrics(self, goal: Goal) -> Option<&'static [Metric]> {
        match goal {
            Goal::Label => Some(&[Metric::MatthewsCorrelation, Metric::F1]),
            Goal::Tags => Some(&[Metric::MicroF1NoMisc, Metric::MicroF1, Metric::OverallF1]),
            Goal::LabelSet | Goal::Numbers => None,
        }
    }

    /// Tokens of the longest sequence, unless the list sets another length, for models that take `longest`.
    pub fn sequence_length(self, longest: usize) -> usize {
        longest.min(LONGEST_SEQUENCE)
    }

    /// The seeds of the iterations.
    pub(super) fn seeds(self, iterations: Option<u32>) -> Vec<u64> {
        let (first, usual) = match self {
            Self::Euroeval => (EUROEVAL_SEED, EUROEVAL_ITERATIONS),
        };
        (first..first + iterations.map_or(usual, u64::from)).collect()
    }

    /// Lays the tree of a task over the values of the protocol.
    pub(super) fn under(self, task: Node, overrides: &[Override]) -> Node {
        const ROWS: &str = "per_device_train_batch_size";
        let mut defaults = self.defaults();
        let sections = task.entries().iter().filter(|entry| entry.key == "training");
        let gives_rows = sections.flat_map(|entry| entry.node.entries()).any(|key| name_of(&key.key) == ROWS)
            || overrides.iter().any(|one| one.key() == format!("training.{ROWS}"));
        // The rows of an update are given with `auto` only.
        let training = defaults.entries_mut().into_iter().flatten().find(|entry| entry.key == "training");
        if let Some(training) = training.filter(|_| gives_rows) {
            training.node.take("train_batch_size");
        }
        merged(defaults, task)
    }

    fn defaults(self) -> Node {
        match self {
            Self::Euroeval => parse(EUROEVAL, "protocol").expect("is valid YAML"),
        }
    }

    /// The values of a task that are not the protocol's, except those that change no result.
    pub(super) fn departures(self, config: &FinetuneConfig, seeds: &[u64]) -> Vec<Departure> {
        let own = self.config();
        let mut expected = config.clone();
        expected.training = own.training;
        expected.run.seed = own.run.seed;
        expected.data.bootstrap = own.data.bootstrap;
        expected.data.max_seq_length = None;
        expected.hidden_dropout_prob = None;
        expected.attention_probs_dropout_prob = None;
        let keeps_rows = expected.training.rows_per_update() == config.training.rows_per_update();
        let free = ["training.logging_steps", "training.per_device_eval_batch_size"];
        let mut departures = Vec::new();
        for change in diff(&expected, config) {
            let path = change.path.as_str();
            if change.keeps_numbers() || free.contains(&path) || keeps_rows && change.splits_updates() {
                continue;
            }
            let protocol = if path == "data.max_seq_length" {
                json!(format!("what all models take, at most {LONGEST_SEQUENCE}"))
            } else {
                change.old
            };
            departures.push(Departure { key: change.path, value: change.new, protocol });
        }
        let usual = self.seeds(None);
        if seeds.len() != usual.len() {
            let key = "iterations".to_string();
            departures.push(Departure { key, value: json!(seeds.len()), protocol: json!(usual.len()) });
        }
        if seeds != self.seeds(Some(seeds.len() as u32)) {
            let protocol = json!(format!("{EUROEVAL_SEED} and the numbers after it"));
            departures.push(Departure { key: "seeds".to_string(), value: json!(seeds), protocol });
        }
        departures
    }

    /// A configuration with the values of the protocol, and placeholders for model and files.
    fn config(self) -> FinetuneConfig {
        let keys = ["model", "data.train_file", "data.eval_file"];
        let placeholders = keys.map(|key| Override::placed("protocol", key, "placeholder"));
        let loaded = load::finetune_of(Some((Path::new("protocol"), self.defaults())), &placeholders);
        loaded.expect("the values of a protocol are valid").config
    }

    /// Refuses a task that this protocol cannot score.
    pub(super) fn require(
        self,
        config: &FinetuneConfig,
        place: &Place,
    ) -> Result<&'static [Metric], Problems> {
        let Some(metrics) = self.metrics(config.goal()) else {
            let message = "the protocol has scores for `classify` with one label and `token-classify` only";
            return Err(refuse(place, message, "take this task out, or compare without `protocol`"));
        };
        if config.data.test_file.is_none() {
            let hint =
                "name a file of examples that are scored once, next to `eval_file`, which ends training";
            return Err(refuse(place, "`data.test_file` is missing", hint));
        }
        Ok(metrics)
    }
}

/// Refuses keys that a comparison without a protocol would not follow.
pub(super) fn refuse_without(config: &FinetuneConfig, place: &Place) -> Result<(), Problems> {
    let data = serde_json::to_value(&config.data).unwrap_or_default();
    match TASK_KEYS.iter().find(|key| !data[**key].is_null()) {
        None => Ok(()),
        Some(key) => Err(refuse(
            place,
            format!(
                "`data.{key}` is given, and the list follows no protocol: models are compared on `eval_file`"
            ),
            "remove it, or add `protocol: euroeval`",
        )),
    }
}

fn refuse(place: &Place, message: impl Into<String>, hint: &str) -> Problems {
    Problems(vec![Problem::usage(message).at(place.shown()).hint(hint)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchSize, OptimizerType, SchedulerType};

    #[test]
    fn the_protocol_has_the_published_values() {
        let config = Protocol::Euroeval.config();
        let training = &config.training;
        assert_eq!(
            (training.optim, training.lr_scheduler_type),
            (OptimizerType::Adamw, SchedulerType::Linear)
        );
        assert_eq!((training.max_steps, training.eval_steps, training.save_steps), (10_000, 30, 30));
        assert_eq!((training.per_device_train_batch_size, training.rows_per_update()), (BatchSize::Auto, 32));
        assert_eq!(
            (training.early_stopping_patience, training.metric_for_best_model.as_deref()),
            (Some(2), Some("loss"))
        );
        assert!(training.load_best_model_at_end && config.data.bootstrap);
        let rates = [training.learning_rate, training.warmup_steps, training.weight_decay];
        let betas = [training.adam_beta1, training.adam_beta2, training.max_grad_norm];
        assert_eq!([rates, betas].concat(), [2e-5, 100.0, 0.0, 0.9, 0.999, 1.0]);
        assert_eq!(Protocol::Euroeval.seeds(None), (4242..4252).collect::<Vec<u64>>());
        assert_eq!(Protocol::Euroeval.departures(&config, &Protocol::Euroeval.seeds(None)), []);
    }

    #[test]
    fn departures_are_named_unless_they_change_no_result() {
        let mut config = Protocol::Euroeval.config();
        config.training.per_device_train_batch_size = BatchSize::Rows(16);
        config.training.train_batch_size = None;
        config.training.gradient_accumulation_steps = 2;
        config.training.logging_steps = 7;
        config.run.threads = 1;
        config.training.learning_rate = 5e-4;
        config.data.max_seq_length = Some(64);
        let named: Vec<String> = Protocol::Euroeval
            .departures(&config, &[4242, 4243])
            .into_iter()
            .map(|one| format!("{}: {}, not {}", one.key, one.value, one.protocol))
            .collect();
        assert_eq!(
            named,
            [
                "data.max_seq_length: 64, not \"what all models take, at most 512\"",
                "training.learning_rate: 0.0005, not 0.00002",
                "iterations: 2, not 10",
            ]
        );
        config.training.gradient_accumulation_steps = 1;
        let seeds = [1, 2];
        let keys: Vec<String> =
            Protocol::Euroeval.departures(&config, &seeds).into_iter().map(|one| one.key).collect();
        let rows = "training.per_device_train_batch_size".to_string();
        assert!(keys.contains(&rows) && keys.contains(&"seeds".to_string()), "{keys:?}");
    }
}
