//! The settings that a run chooses on this machine if its configuration leaves them open. They come from the
//! functions that a run calls.

use anyhow::Result;
use serde::Serialize;

use crate::machine;
use base::error::Problem;
use config::{PrecisionConfig, RunSection};
use ops::cuda;

/// Device, number type and threads that a run would use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Run {
    /// Device, such as `cpu` or `cuda:0`.
    pub device: Option<String>,
    /// Number type of the computation.
    pub compute: Option<&'static str>,
    /// Equal to `compute`, for programs that read this key from the time when `auto` was not the default.
    pub compute_auto: Option<&'static str>,
    /// Threads in the pool.
    pub threads: Option<usize>,
    /// Notes that the run would print about these settings.
    pub notes: Vec<String>,
    /// Error message, if a run would be refused.
    pub refused: Option<String>,
}

impl Run {
    /// The settings for a default configuration.
    pub(super) fn by_default() -> Self {
        Self::try_by_default().unwrap_or_else(|error| {
            let refused =
                error.downcast_ref::<Problem>().map_or_else(|| format!("{error:#}"), |p| p.message.clone());
            Self { refused: Some(refused), ..Self::default() }
        })
    }

    fn try_by_default() -> Result<Self> {
        let run = RunSection::default();
        let precision = PrecisionConfig::default();
        let machine = machine::set_up(&run, &precision)?;
        let gpu = cuda::properties(&machine.device);
        let without_gpu = machine.without_gpu.map(|why| format!("no GPU is used: {why}; {}", why.hint()));
        let policy_notes =
            machine.policy.notes.iter().map(|note| note.trim_start_matches("note: ").to_string());
        Ok(Self {
            device: Some(gpu.map_or_else(|| "cpu".to_string(), |gpu| format!("cuda:{}", gpu.ordinal))),
            compute: Some(machine.policy.compute.as_str()),
            compute_auto: Some(machine.policy.compute.as_str()),
            threads: Some(machine.threads),
            notes: without_gpu.into_iter().chain(policy_notes).collect(),
            refused: None,
        })
    }
}
