//! Chooses the sinks of a run other than the terminal, from the keys in the section `run` of its
//! configuration.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::telemetry::metrics::MetricsLog;
use crate::telemetry::mlflow;
use crate::telemetry::mlflow::Mlflow;
use crate::telemetry::prometheus::Prometheus;
use crate::telemetry::sink::Sinks;
use crate::telemetry::tensorboard::TensorBoard;
use config::{RunSection, Tracker};

/// Name of the file with all records in the folder of a run.
pub const METRICS: &str = "metrics.jsonl";

/// The sinks that a run asks for, not opened yet.
#[derive(Debug, Clone, Default)]
pub struct Outlets {
    tensorboard: bool,
    /// The folder of MLflow's store.
    mlflow: Option<PathBuf>,
    /// The folder of Prometheus' text files.
    prometheus: Option<PathBuf>,
    /// The configuration, as trackers show it.
    config: Value,
    seed: u64,
}

impl Outlets {
    /// Chooses the sinks that `run` asks for; `config` is the configuration as it is saved.
    pub fn of(run: &RunSection, config: &Value, seed: u64) -> Result<Self> {
        let mlflow = run.trackers.contains(&Tracker::Mlflow).then(mlflow::store).transpose()?;
        let prometheus = run.prometheus_dir.clone();
        Ok(Self { tensorboard: run.tensorboard, mlflow, prometheus, config: config.clone(), seed })
    }

    /// Returns true if a sink shows histograms of the weights.
    pub fn show_weights(&self) -> bool {
        self.tensorboard
    }

    /// Opens the sinks for a new run (`None`) or for one that continues after `resumed_step`.
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
