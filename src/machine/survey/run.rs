//! What a run would take of the machine where its configuration says nothing of it, by the functions that a
//! run asks.

use anyhow::Result;
use serde::Serialize;

use crate::config::PrecisionConfig;
use crate::config::RunSection;
use crate::error::Problem;
use crate::machine;
use crate::ops::cuda;

/// What a run would compute on, and in what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Run {
    /// `cpu`, `cuda:0`.
    pub device: Option<String>,
    /// The type that it computes in.
    pub compute: Option<&'static str>,
    /// Equal to `compute`; for programs that read it from when `auto` was not the default.
    pub compute_auto: Option<&'static str>,
    /// Of the pool.
    pub threads: Option<usize>,
    /// What the run would say of it.
    pub notes: Vec<String>,
    /// Why there would be no run.
    pub refused: Option<String>,
}

impl Run {
    /// With the defaults of a configuration.
    pub(super) fn by_default() -> Self {
        Self::try_by_default().unwrap_or_else(|error| {
            let refused =
                error.downcast_ref::<Problem>().map_or_else(|| format!("{error:#}"), |p| p.message.clone());
            Self { refused: Some(refused), ..Self::default() }
        })
    }

    fn try_by_default() -> Result<Self> {
        let (run, precision) = (RunSection::default(), PrecisionConfig::default());
        let machine = machine::set_up(&run, &precision)?;
        let gpu = cuda::properties(&machine.device);
        let without_gpu = machine.without_gpu.map(|why| format!("no GPU is used: {why}; {}", why.hint()));
        let said = machine.policy.notes.iter().map(|note| note.trim_start_matches("note: ").to_string());
        Ok(Self {
            device: Some(gpu.map_or_else(|| "cpu".to_string(), |gpu| format!("cuda:{}", gpu.ordinal))),
            compute: Some(machine.policy.compute.as_str()),
            compute_auto: Some(machine.policy.compute.as_str()),
            threads: Some(machine.threads),
            notes: without_gpu.into_iter().chain(said).collect(),
            refused: None,
        })
    }
}
