//! Several processes that train one model.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::error::Problem;
use crate::quantity::parse_duration;

/// What holds where `mpirun` or `srun` starts several processes of one run, in a build with MPI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DistributedConfig {
    /// How long a process waits for the others within a step, such as `10m`, before it takes them for dead
    /// and ends all with exit code 75. Longer than the first one takes to save a checkpoint.
    pub timeout: String,
}

impl Default for DistributedConfig {
    fn default() -> Self {
        Self { timeout: "10m".to_string() }
    }
}

impl DistributedConfig {
    /// How long a process waits for the others.
    pub fn timeout(&self) -> Result<Duration, Problem> {
        let timeout = parse_duration(&self.timeout);
        timeout.map_err(|e| Problem::usage(e.to_string()).at("distributed.timeout"))
    }
}
