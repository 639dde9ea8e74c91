//! The results of a sweep: means over seeds for each setting and the best run, as a table and as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::tasks::finetuning_task::Column;
use crate::trials::means::mean_and_deviation;
use base::pages::table::Table;
use base::scores::{Better, mean, sample_std};
use config::{Setting, Sweep};

/// The run of a setting with one seed.
#[derive(Debug, Clone)]
pub(super) struct SeedRun {
    pub(super) seed: u64,
    pub(super) folder: PathBuf,
    /// Scores by the names of transformers' Trainer; empty if training diverged.
    pub(super) scores: BTreeMap<String, f64>,
}

/// The runs of each finished setting, in the order of the sweep.
#[derive(Debug, Clone)]
pub(super) struct Summary<'a> {
    pub(super) sweep: &'a Sweep,
    /// The score that ranks the settings, by the name of transformers' Trainer.
    pub(super) metric: String,
    pub(super) better: Better,
    pub(super) columns: &'static [Column],
    /// The runs of each setting, one for each seed.
    pub(super) settings: Vec<Vec<SeedRun>>,
}

impl Summary<'_> {
    /// The values of a score over the seeds of a setting.
    pub(super) fn values(&self, setting: usize, name: &str) -> Vec<f64> {
        self.settings[setting].iter().filter_map(|run| run.scores.get(name).copied()).collect()
    }

    /// The setting with the best mean; of equal ones, the first. A setting that diverged with any seed is
    /// left out.
    pub(super) fn best_setting(&self) -> Option<usize> {
        self.better.best_place((0..self.settings.len()).map(|setting| {
            let values = self.values(setting, &self.metric);
            (values.len() == self.sweep.seeds.len()).then(|| mean(&values))
        }))
    }

    /// All settings whose mean equals the best one.
    pub(super) fn tied_settings(&self) -> Vec<usize> {
        let Some(best) = self.best_setting() else { return Vec::new() };
        let score = mean(&self.values(best, &self.metric));
        let mut tied = Vec::new();
        for setting in 0..self.settings.len() {
            let values = self.values(setting, &self.metric);
            if values.len() == self.sweep.seeds.len() && mean(&values).to_bits() == score.to_bits() {
                tied.push(setting);
            }
        }
        tied
    }

    /// The best run of a setting; of equal ones, the first.
    pub(super) fn best_seed(&self, setting: usize) -> Option<&SeedRun> {
        let runs = &self.settings[setting];
        let at = self.better.best_place(runs.iter().map(|run| run.scores.get(&self.metric).copied()))?;
        runs.get(at)
    }

    /// The names of the swept keys, as short as is unambiguous.
    pub(super) fn names(&self) -> Vec<&str> {
        short_names(&self.sweep.keys)
    }

    /// Returns the table of the sweep: a row for each setting, the best one marked unless several are best.
    pub(super) fn table(&self) -> Table {
        let mut header: Vec<String> = self.names().iter().map(ToString::to_string).collect();
        let names = header.len();
        header.push("seeds".to_string());
        header.extend(self.columns.iter().map(|column| column.title.to_string()));
        let rows = (0..self.settings.len())
            .map(|setting| {
                let mut cells = self.sweep.settings[setting].values.clone();
                let runs = &self.settings[setting];
                let diverged = runs.iter().filter(|run| run.scores.is_empty()).count();
                let lost = if diverged > 0 { format!(" ({diverged} diverged)") } else { String::new() };
                cells.push(format!("{}{lost}", runs.len()));
                cells.extend(self.columns.iter().map(|column| {
                    let values = self.values(setting, column.score);
                    // If all seeds diverged, there is no score.
                    if diverged == runs.len() {
                        return "-".to_string();
                    }
                    mean_and_deviation(
                        mean(&values),
                        (values.len() > 1).then(|| sample_std(&values)),
                        column.factor,
                    )
                }));
                cells.into_iter().collect()
            })
            .collect();
        let best = self.best_setting().filter(|_| self.tied_settings().len() == 1);
        Table { names, ..Table::new(header, rows).with_best(best) }
    }

    /// Returns the content of `sweep.json`: all scores of all runs, and the best run.
    pub(super) fn json(&self) -> Value {
        let best = self.best_setting().and_then(|setting| {
            let run = self.best_seed(setting)?;
            let mut row = self.key_values(setting);
            row.insert("seed".to_string(), run.seed.into());
            row.insert("folder".to_string(), json!(run.folder));
            Some(Value::from(row))
        });
        let settings: Vec<Value> =
            (0..self.settings.len()).map(|setting| self.setting_json(setting)).collect();
        json!({"metric": self.metric, "better": self.better, "settings": settings, "best": best})
    }

    /// The values, mean, deviation and runs of a setting.
    fn setting_json(&self, setting: usize) -> Value {
        let mut row = self.key_values(setting);
        let values = self.values(setting, &self.metric);
        row.insert("mean".to_string(), json!(Some(mean(&values)).filter(|mean| mean.is_finite())));
        row.insert("std".to_string(), json!((values.len() > 1).then(|| sample_std(&values))));
        let runs: Vec<Value> = self.settings[setting]
            .iter()
            .map(|run| json!({"seed": run.seed, "folder": run.folder, "scores": run.scores}))
            .collect();
        row.insert("runs".to_string(), runs.into());
        Value::from(row)
    }

    /// Returns the values that a setting gives the swept keys, by the paths of the keys.
    fn key_values(&self, setting: usize) -> Map<String, Value> {
        let values = swept_values(&self.sweep.keys, &self.sweep.settings[setting]);
        Map::from_iter([("setting".to_string(), values)])
    }
}

/// Returns the values that a setting gives the swept keys, by the paths of the keys, as in `sweep.json`.
pub(super) fn swept_values(keys: &[String], setting: &Setting) -> Value {
    let config = config::saved(&setting.config);
    let values = keys.iter().map(|key| (key.clone(), value_of(&config, key).cloned().unwrap_or_default()));
    values.collect::<Map<String, Value>>().into()
}

/// Returns the value of a key, given by its dotted path, in a configuration as JSON.
pub(super) fn value_of<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    config.pointer(&format!("/{}", key.replace('.', "/")))
}

/// Returns the last part of each dotted path, or the whole path if two paths end in the same part.
pub(super) fn short_names(keys: &[String]) -> Vec<&str> {
    let last_parts: Vec<&str> = keys.iter().map(|key| key.rsplit('.').next().unwrap_or_default()).collect();
    let names = keys.iter().zip(&last_parts).map(|(key, part)| {
        let is_unique = last_parts.iter().filter(|other| *other == part).count() == 1;
        if is_unique { *part } else { key.as_str() }
    });
    names.collect()
}
