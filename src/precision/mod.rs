//! Which number type where.
//!
//! Parameters, moments, gradients and sums are f32 always; the policy says in which type the model computes.

use candle_core::DType;

use crate::config::pretrain::ComputeType;
use crate::config::pretrain::PrecisionConfig;

/// The types of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Type of activations and matrix products.
    pub compute: DType,
}

impl Policy {
    /// The policy that a configuration asks for.
    pub fn of(config: &PrecisionConfig) -> Self {
        let compute = match config.compute {
            ComputeType::F32 => DType::F32,
        };
        Self { compute }
    }
}
