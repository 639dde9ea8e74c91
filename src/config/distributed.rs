//! The section `distributed`: several processes that train one model.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::on_resume::OnResume;
use base::error::Problem;
use base::quantity::parse_duration;

/// Settings of a run with several processes, in a build with MPI or NCCL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DistributedConfig {
    /// How long a process waits for the others within a step, such as `10m`, before it takes them for dead
    /// and ends all with exit code 75. Longer than the first one takes to save a checkpoint.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub timeout: String,
    /// All-reduce gradients during the last backward pass of an update. Same bits, memory for one more set of
    /// gradients.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub overlap: bool,
    /// Type of gradients between processes; sums are f32.
    #[schemars(extend("x-on-resume" = OnResume::Exchange))]
    pub wire: Wire,
    /// Order of the sums of gradients.
    #[schemars(extend("x-on-resume" = OnResume::Exchange))]
    pub sum: SumOrder,
    /// Each process keeps the moments of a part of the parameters, updates that part and gives it to the others.
    /// The bits are the same; it takes less memory, and more travels.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub shard_optimizer: bool,
    /// Steps after which all processes compare their parameters, as they do before each checkpoint; 0 for
    /// never.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub check_replicas_steps: u64,
}

/// The type in which gradients travel between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// 32 bits.
    F32,
    /// Half the bytes; 8 significant bits of each value and each sum.
    Bf16,
}

impl Wire {
    /// Returns the name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// In which order gradients are added up over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SumOrder {
    /// A fixed tree: 1, 2, 4 and 8 processes leave the same bits.
    Tree,
    /// The library's own, which may depend on the number of processes and on the network. Between GPUs it is
    /// always used.
    Fast,
}

impl Default for DistributedConfig {
    fn default() -> Self {
        Self {
            timeout: "10m".to_string(),
            overlap: true,
            wire: Wire::F32,
            sum: SumOrder::Tree,
            shard_optimizer: false,
            check_replicas_steps: 1000,
        }
    }
}

impl DistributedConfig {
    /// Returns how long a process waits for the others.
    pub fn timeout(&self) -> Result<Duration, Problem> {
        let timeout = parse_duration(&self.timeout);
        timeout.map_err(|e| Problem::usage(e.to_string()).at("distributed.timeout"))
    }
}
