//! What the settings of a sweep came to: means over seeds, the best one, as a table and as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::config;
use crate::config::Sweep;
use crate::scores::Better;
use crate::scores::mean;
use crate::scores::sample_std;
use crate::trials::table::Table;
use crate::trials::table::mean_and_deviation;

/// A score by the Trainer's name, the title of its column, and what it is multiplied by.
pub(super) type Column = (&'static str, &'static str, f64);

/// One run of a setting.
#[derive(Debug, Clone)]
pub(super) struct OfSeed {
    pub(super) seed: u64,
    pub(super) folder: PathBuf,
    /// By the Trainer's names; none where training diverged.
    pub(super) scores: BTreeMap<String, f64>,
}

/// The runs of each setting that is done, in the order of the sweep.
#[derive(Debug, Clone)]
pub(super) struct Summary<'a> {
    pub(super) sweep: &'a Sweep,
    /// The score that decides, by the Trainer's name.
    pub(super) metric: String,
    pub(super) better: Better,
    pub(super) columns: &'static [Column],
    pub(super) settings: Vec<Vec<OfSeed>>,
}

impl Summary<'_> {
    /// The values of a score over the seeds of a setting.
    pub(super) fn values(&self, setting: usize, name: &str) -> Vec<f64> {
        self.settings[setting].iter().filter_map(|of| of.scores.get(name).copied()).collect()
    }

    /// The setting with the best mean, the first of equals. One that diverged with any seed is not trusted
    /// with the others.
    pub(super) fn best_setting(&self) -> Option<usize> {
        let score = |setting: usize| {
            let values = self.values(setting, &self.metric);
            (values.len() == self.sweep.seeds.len()).then(|| mean(&values))
        };
        self.better.best_place((0..self.settings.len()).map(score))
    }

    /// The best run of a setting, the first of equals.
    pub(super) fn best_seed(&self, setting: usize) -> Option<&OfSeed> {
        let runs = &self.settings[setting];
        let at = self.better.best_place(runs.iter().map(|of| of.scores.get(&self.metric).copied()))?;
        runs.get(at)
    }

    /// The names of the swept keys, as short as they are clear.
    pub(super) fn names(&self) -> Vec<&str> {
        short_names(&self.sweep.keys)
    }

    /// A row for each setting, the best one marked.
    pub(super) fn table(&self) -> Table {
        let mut header: Vec<String> = self.names().iter().map(ToString::to_string).collect();
        let names = header.len();
        header.push("seeds".to_string());
        header.extend(self.columns.iter().map(|(_, title, _)| title.to_string()));
        let row = |setting: usize| {
            let mut cells = self.sweep.settings[setting].values.clone();
            let runs = &self.settings[setting];
            let diverged = runs.iter().filter(|of| of.scores.is_empty()).count();
            let lost = if diverged > 0 { format!(" ({diverged} diverged)") } else { String::new() };
            cells.push(format!("{}{lost}", runs.len()));
            cells.extend(self.columns.iter().map(|(name, _, factor)| {
                let values = self.values(setting, name);
                // With all seeds diverged there was nothing to measure.
                if diverged == runs.len() {
                    return "-".to_string();
                }
                mean_and_deviation(mean(&values), (values.len() > 1).then(|| sample_std(&values)), *factor)
            }));
            cells
        };
        let rows = (0..self.settings.len()).map(row).collect();
        Table { header, rows, marked: self.best_setting(), names }
    }

    /// All scores of all runs, and which run is the best.
    pub(super) fn json(&self) -> Value {
        let of_setting = |setting: usize| {
            let mut row = self.key_values(setting);
            let values = self.values(setting, &self.metric);
            row.insert("mean".to_string(), json!(Some(mean(&values)).filter(|mean| mean.is_finite())));
            row.insert("std".to_string(), json!((values.len() > 1).then(|| sample_std(&values))));
            let runs: Vec<Value> = self.settings[setting]
                .iter()
                .map(|of| json!({"seed": of.seed, "folder": of.folder, "scores": of.scores}))
                .collect();
            row.insert("runs".to_string(), runs.into());
            Value::from(row)
        };
        let best = self.best_setting().and_then(|setting| {
            let run = self.best_seed(setting)?;
            let mut row = self.key_values(setting);
            row.insert("seed".to_string(), run.seed.into());
            row.insert("folder".to_string(), json!(run.folder));
            Some(Value::from(row))
        });
        let settings: Vec<Value> = (0..self.settings.len()).map(of_setting).collect();
        json!({"metric": self.metric, "better": self.better, "settings": settings, "best": best})
    }

    /// The swept keys, by their paths, with the values that a setting gives them.
    fn key_values(&self, setting: usize) -> Map<String, Value> {
        let config = config::saved(&self.sweep.settings[setting].config);
        let value = |key: &String| config.pointer(&format!("/{}", key.replace('.', "/"))).cloned();
        let keys = self.sweep.keys.iter();
        Map::from_iter([(
            "setting".to_string(),
            keys.map(|key| (key.clone(), value(key).unwrap_or_default())).collect::<Map<_, _>>().into(),
        )])
    }
}

/// The last names of dotted paths, or the whole paths where two have the same last name.
pub(super) fn short_names(keys: &[String]) -> Vec<&str> {
    let last = |key: &'_ String| key.rsplit('.').next().unwrap_or_default().to_string();
    let is_alone = |key: &String| keys.iter().filter(|other| last(other) == last(key)).count() == 1;
    let short = |key: &'_ String| key.rfind('.').filter(|_| is_alone(key)).map_or(0, |at| at + 1);
    keys.iter().map(|key| &key[short(key)..]).collect()
}
