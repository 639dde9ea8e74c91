//! The section `run`: output folder, device, seed, reports and limits.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::DeviceChoice;
use crate::on_resume::OnResume;
use crate::training::TrainingConfig;

/// Another program that shows the records of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tracker {
    /// `MLflow`, by its file store.
    Mlflow,
}

/// Output folder, device, seed, reports and limits of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// Folder of checkpoints, metrics and the final model.
    #[schemars(
        length(min = 1),
        example = "runs/first",
        extend("x-on-resume" = OnResume::Free, "x-path" = true),
    )]
    pub output_dir: PathBuf,
    /// Seed of initialisation, order, masking and dropout.
    #[schemars(extend(
        "x-foreign-names" = ["data_seed"],
        "x-foreign-hint" = ": order, masks and dropout follow from it",
    ))]
    pub seed: u64,
    /// Device to compute on. `auto` takes the first GPU if there is one that can be used, and says why not if
    /// there is none; `cuda` or `cuda:1` is an error without it.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub device: DeviceChoice,
    /// Threads of the one pool that everything computes in; 0 means one for each core that this process may
    /// use, by its CPU affinity and its cgroup's CPU quota.
    #[schemars(
        range(max = 1024),
        extend(
            "x-on-resume" = OnResume::Free,
            "x-foreign-names" = ["num_threads", "preprocessing_num_workers"],
        ),
    )]
    pub threads: usize,
    /// Price of the machine per hour, in US dollars: then costs are reported, too.
    #[schemars(range(min = 0.0), example = 2.49, extend("x-on-resume" = OnResume::Free))]
    pub usd_per_hour: Option<f64>,
    /// Most US dollars that all training of the run may cost at `usd_per_hour`. If that does not suffice for
    /// all steps, there are fewer, and the learning rate still ends where it would have ended.
    #[schemars(extend("exclusiveMinimum" = 0, "x-on-resume" = OnResume::Cadence))]
    pub budget_usd: Option<f64>,
    /// When training ends at the latest, such as `2026-12-24T18:00:00+02:00`; steps and learning rate as with
    /// `budget_usd`.
    #[schemars(extend("x-on-resume" = OnResume::Cadence))]
    pub deadline: Option<String>,
    /// Also write TensorBoard events, into `<output_dir>/runs`.
    #[schemars(extend(
        "x-on-resume" = OnResume::Free,
        "x-foreign-names" = ["report_to", "logging_dir"],
        "x-foreign-hint" = ": true or false; metrics.jsonl is always written",
    ))]
    pub tensorboard: bool,
    /// Other programs to write for: `mlflow`, whose file store is `mlruns` or the folder of
    /// `MLFLOW_TRACKING_URI`.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub trackers: Vec<Tracker>,
    /// Folder for a text file of the newest values, for the collector of Prometheus' node exporter.
    #[schemars(extend("x-on-resume" = OnResume::Free, "x-path" = true))]
    pub prometheus_dir: Option<PathBuf>,
    /// A line of `sh` that is run at the end of the command: `MLMTRAIN_EVENT` is `complete`, `stopped` or
    /// `failed`, `MLMTRAIN_RUN` the folder, `MLMTRAIN_MESSAGE` says more.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub notify_command: Option<String>,
    /// A folder in a bucket, such as `s3://bucket/runs/first`: checkpoints, records and the final model are
    /// copied there during the run, and a machine without them begins with the copies.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub upload_to: Option<String>,
    /// How long a run that a signal stops waits for its bucket after its last checkpoint was saved, such as `60s`.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub stop_within: String,
    /// A sentence with mask tokens that is filled in at the end, to look at.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub sample_text: Option<String>,
}

impl RunSection {
    /// Returns the first of the keys of this section that may end a run before its steps are done.
    pub fn limit(&self) -> Option<&'static str> {
        self.own_limits().next()
    }

    /// Returns all given keys that may end a run before its steps are done.
    pub fn limits(&self, training: &TrainingConfig) -> Vec<&'static str> {
        let time = training.max_train_time.as_ref().map(|_| "training.max_train_time");
        time.into_iter().chain(self.own_limits()).collect()
    }

    fn own_limits(&self) -> impl Iterator<Item = &'static str> + use<> {
        let budget = self.budget_usd.map(|_| "run.budget_usd");
        let deadline = self.deadline.as_ref().map(|_| "run.deadline");
        budget.into_iter().chain(deadline)
    }
}

impl Default for RunSection {
    fn default() -> Self {
        Self {
            output_dir: PathBuf::from("runs/default"),
            seed: 42,
            device: DeviceChoice::Auto,
            threads: 0,
            usd_per_hour: None,
            budget_usd: None,
            deadline: None,
            tensorboard: true,
            trackers: Vec::new(),
            prometheus_dir: None,
            notify_command: None,
            upload_to: None,
            stop_within: "60s".to_string(),
            sample_text: None,
        }
    }
}
