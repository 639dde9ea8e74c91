//! What the hardware at hand can do with each number type.

use candle_core::DType;
use candle_core::Device;

use crate::config::ComputeType;
use crate::ops::cuda;
use crate::ops::matmul::cpu::is_native;

/// The first generation with bf16.
const AMPERE: (u32, u32) = (8, 0);

/// How well a type is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// By instructions of its own.
    Native,
    /// It works, but is no faster than f32; why, and what serves it better.
    Slow(String),
    /// Not at all.
    Missing,
}

/// A device as the precision policy sees it. Every device computes in f32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// How messages call it.
    pub name: String,
    /// Support of bf16.
    pub bf16: Support,
    /// Support of f16.
    pub f16: Support,
}

impl Hardware {
    /// The hardware behind `device`.
    pub fn of(device: &Device) -> Self {
        match device {
            Device::Cpu => Self::cpu(),
            other => cuda::properties(other).map_or_else(
                // Of a device of which nothing more is known, f32 is all that is promised.
                || Self {
                    name: format!("{:?}", other.location()),
                    bf16: Support::Missing,
                    f16: Support::Missing,
                },
                |gpu| Self::gpu(&gpu),
            ),
        }
    }

    /// A GPU: tensor cores of Turing know f16, those of Ampere and newer bf16 as well.
    pub fn gpu(gpu: &cuda::Properties) -> Self {
        let name = format!("GPU {} `{}`", gpu.ordinal, gpu.name);
        let bf16 = if gpu.capability >= AMPERE { Support::Native } else { Support::Missing };
        Self { name, bf16, f16: Support::Native }
    }

    /// The CPU that this process runs on. Half types work on each: values are widened to f32 where it has no
    /// instructions.
    pub fn cpu() -> Self {
        let widened = "this CPU has no AVX-512-BF16 (AMD Zen 4 and later, Intel Sapphire Rapids and later), so values are widened to f32; \
                       activations take half the memory all the same";
        Self {
            name: "the CPU".to_string(),
            bf16: if is_native(DType::BF16) { Support::Native } else { Support::Slow(widened.to_string()) },
            f16: Support::Slow(
                "on a CPU it is for checking what a GPU will do, and slower than f32".to_string(),
            ),
        }
    }

    /// The shortest type that it computes in quickly without a loss scale.
    pub fn best(&self) -> ComputeType {
        if self.bf16 == Support::Native { ComputeType::Bf16 } else { ComputeType::F32 }
    }

    /// Support of `dtype`.
    pub fn support(&self, dtype: DType) -> Support {
        match dtype {
            DType::F32 => Support::Native,
            DType::BF16 => self.bf16.clone(),
            DType::F16 => self.f16.clone(),
            _ => Support::Missing,
        }
    }
}
