//! Where the records of a run go besides the terminal, by the keys of `run`.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use crate::config::RunSection;
use crate::config::Tracker;
use crate::telemetry::metrics::MetricsLog;
use crate::telemetry::mlflow;
use crate::telemetry::mlflow::Mlflow;
use crate::telemetry::prometheus::Prometheus;
use crate::telemetry::sink::Sinks;
use crate::telemetry::tensorboard::TensorBoard;

/// The file of all records in the folder of a run.
pub const METRICS: &str = "metrics.jsonl";

/// What a run writes of itself.
#[derive(Debug, Clone, Default)]
pub struct Outlets {
    tensorboard: bool,
    /// The folder of the store.
    mlflow: Option<PathBuf>,
    prometheus: Option<PathBuf>,
    /// The configuration, as trackers show it.
    config: Value,
    seed: u64,
}

impl Outlets {
    /// Those that `run` asks for; `config` is the configuration as it is saved.
    pub fn of(run: &RunSection, config: &Value, seed: u64) -> Result<Self> {
        let mlflow = run.trackers.contains(&Tracker::Mlflow).then(mlflow::store).transpose()?;
        let prometheus = run.prometheus_dir.clone();
        Ok(Self { tensorboard: run.tensorboard, mlflow, prometheus, config: config.clone(), seed })
    }

    /// Whether one of them shows how weights are spread.
    pub fn show_weights(&self) -> bool {
        self.tensorboard
    }

    /// Opens them for a run that starts afresh, or goes on after `resumed_step`.
    pub fn open(&self, folder: &Path, resumed_step: Option<u64>) -> Result<Sinks> {
        let mut sinks = Sinks::new();
        sinks.add(MetricsLog::open(&folder.join(METRICS), resumed_step)?);
        if self.tensorboard {
            sinks.add(TensorBoard::create(&folder.join("runs"), resumed_step, &self.config, self.seed)?);
        }
        if let Some(store) = &self.mlflow {
            sinks.add(Mlflow::create(store, folder, &self.config, resumed_step)?);
        }
        if let Some(place) = &self.prometheus {
            sinks.add(Prometheus::create(place, folder)?);
        }
        Ok(sinks)
    }
}
