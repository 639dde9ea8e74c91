//! The section `precision`: the number types of a run.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// In which type the model computes; parameters, moments and sums are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ComputeType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats with the range of f32 and 8 bits of precision: half the memory of activations, no loss
    /// scaling.
    Bf16,
    /// 16-bit floats with 11 bits of precision that end at 65,504: gradients are scaled so that they stay in
    /// range.
    F16,
}

impl ComputeType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// Returns the name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// The type that a configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComputeChoice {
    /// The fastest type of the machine: bf16 on GPUs from Ampere on and on CPUs that multiply it faster than f32 (AMX,
    /// AVX-512-BF16 of AMD; `MLMTRAIN_CPU` may leave them out), f16 on a T4, else f32. A resumed run keeps the type
    /// that it began with.
    Auto,
    /// 32-bit floats.
    F32,
    /// 16-bit floats with the range of f32.
    Bf16,
    /// 16-bit floats with a loss scale.
    F16,
}

impl ComputeChoice {
    /// Returns the type; `None` for `auto`, which depends on the machine.
    pub fn known(self) -> Option<ComputeType> {
        match self {
            Self::Auto => None,
            Self::F32 => Some(ComputeType::F32),
            Self::Bf16 => Some(ComputeType::Bf16),
            Self::F16 => Some(ComputeType::F16),
        }
    }
}

impl From<ComputeType> for ComputeChoice {
    fn from(compute: ComputeType) -> Self {
        match compute {
            ComputeType::F32 => Self::F32,
            ComputeType::Bf16 => Self::Bf16,
            ComputeType::F16 => Self::F16,
        }
    }
}

/// The type of gradients that matrix products write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightGradients {
    /// 32-bit floats, in which micro-batches and processes are added up.
    F32,
    /// Half the bytes: each product rounds the f32 sum once. The norm, clipping and the optimizer read these
    /// gradients and compute in f32.
    Bf16,
}

/// Number types and loss scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrecisionConfig {
    /// Type of activations and products.
    #[schemars(extend(
        "x-foreign-names" = ["dtype", "torch_dtype", "mixed_precision", "autocast"],
        "x-foreign-hint" = ": auto, f32, bf16 or f16",
    ))]
    pub compute: ComputeChoice,
    /// Allow a GPU to round the operands of f32 products to TF32 (10 bits of mantissa): several times the
    /// speed on Ampere and newer. Nothing else of f32 changes; CPUs ignore it.
    pub tf32: bool,
    /// Type of the gradients of linear layers; all others (of embeddings, norms, the decoder, layers that
    /// share their weights) are f32. `bf16` is for a run in bf16 in one process, with one micro-batch in a
    /// step: it takes 2 bytes less for each of these weights, and less memory traffic; not measured on a GPU
    /// yet. With `compute: auto` it has no effect where that is not bf16. Every optimizer takes both types.
    #[schemars(extend("x-only-with" = ["precision.compute", "bf16", "auto"]))]
    pub weight_gradients: WeightGradients,
    /// Loss scaling; for f16 only, which has it with these defaults when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScaleConfig>,
}

impl Default for PrecisionConfig {
    fn default() -> Self {
        Self {
            compute: ComputeChoice::Auto,
            tf32: false,
            weight_gradients: WeightGradients::F32,
            loss_scale: None,
        }
    }
}

/// The factor of the loss that keeps gradients within f16; the names are those of PyTorch's `GradScaler`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossScaleConfig {
    /// The first factor, a power of two; absent means 65536. 1048576 is usual for LAMB.
    pub init_scale: Option<f64>,
    /// Good steps in a row after which the factor doubles. A step whose gradients overflow is skipped and
    /// halves it.
    #[schemars(range(min = 1))]
    pub growth_interval: u64,
    /// The smallest factor, a power of two; an overflow even there is a bad step (see `loss_spike_threshold`).
    pub min_scale: f64,
}

impl Default for LossScaleConfig {
    fn default() -> Self {
        Self { init_scale: None, growth_interval: 2000, min_scale: 1.0 }
    }
}
