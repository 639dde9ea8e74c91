//! What the hardware at hand can do with each number type.

use candle_core::DType;
use candle_core::Device;

use crate::config::ComputeType;
use crate::ops::cuda;
use crate::ops::instructions;
use crate::ops::instructions::Choice;
use crate::ops::instructions::Instructions;

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
    /// What a user should know who set a cap on the CPU's instructions.
    pub cap: Option<String>,
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
                    cap: None,
                },
                |gpu| Self::gpu(&gpu),
            ),
        }
    }

    /// A GPU: tensor cores of Turing know f16, those of Ampere and newer bf16 as well.
    pub fn gpu(gpu: &cuda::Properties) -> Self {
        let name = format!("GPU {} `{}`", gpu.ordinal, gpu.name);
        let bf16 = if gpu.capability >= AMPERE { Support::Native } else { Support::Missing };
        Self { name, bf16, f16: Support::Native, cap: None }
    }

    /// The CPU that this process runs on, within the cap on its instructions. Half types work on each: values
    /// are widened to f32 where it has no instructions.
    pub fn cpu() -> Self {
        let none = |_| Choice { machine: instructions::in_use(), cap: None };
        Self::cpu_with(instructions::choice().unwrap_or_else(none), instructions::has_quick_dots())
    }

    fn cpu_with(choice: Choice, has_quick_dots: bool) -> Self {
        let widened = || {
            let why = match choice.cap {
                Some(cap) if choice.machine.multiply_bf16() => {
                    format!("{}={} leaves out AVX-512-BF16", instructions::VARIABLE, cap.name())
                }
                _ => "this CPU has no AVX-512-BF16 (AMD Zen 4 and later) and no AMX (Intel Sapphire Rapids and later)"
                    .to_string(),
            };
            format!("{why}, so values are widened to f32; activations take half the memory all the same")
        };
        let bf16 = match choice.in_use() {
            Instructions::Amx => Support::Native,
            Instructions::Avx512Bf16 if has_quick_dots => Support::Native,
            Instructions::Avx512Bf16 => Support::Slow(
                "without AMX, which the system hides or MLMTRAIN_CPU leaves out, this CPU multiplies f32 faster; \
                 activations take half the memory all the same"
                    .to_string(),
            ),
            _ => Support::Slow(widened()),
        };
        Self {
            name: "the CPU".to_string(),
            bf16,
            f16: Support::Slow(
                "on a CPU it is for checking what a GPU will do, and slower than f32".to_string(),
            ),
            cap: choice.note(),
        }
    }

    /// The type that it computes in fastest: of the half types bf16, which needs no loss scale.
    pub fn best(&self) -> ComputeType {
        match (&self.bf16, &self.f16) {
            (Support::Native, _) => ComputeType::Bf16,
            (_, Support::Native) => ComputeType::F16,
            _ => ComputeType::F32,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_type_of_a_cpu_follows_the_cap() {
        let hardware = |machine, cap| Hardware::cpu_with(Choice { machine, cap }, true);
        let best = |machine, cap| hardware(machine, cap).best();
        assert_eq!(best(Instructions::Amx, None), ComputeType::Bf16);
        assert_eq!(best(Instructions::Amx, Some(Instructions::Avx512Bf16)), ComputeType::Bf16);
        assert_eq!(best(Instructions::Amx, Some(Instructions::Avx512)), ComputeType::F32);
        assert_eq!(
            best(Instructions::Avx2, Some(Instructions::Amx)),
            ComputeType::F32,
            "a cap raises nothing"
        );
        let why = |machine, cap| match hardware(machine, cap).bf16 {
            Support::Slow(why) => why,
            other => panic!("{other:?}"),
        };
        insta::assert_snapshot!(why(Instructions::Amx, Some(Instructions::Avx2)), @"MLMTRAIN_CPU=avx2 leaves out AVX-512-BF16, so values are widened to f32; activations take half the memory all the same");
        let lacking = why(Instructions::Avx2, Some(Instructions::Amx));
        assert!(lacking.starts_with("this CPU has no AVX-512-BF16 "), "{lacking}");
        // Intel: only AMX is quick.
        let intel = |cap| Hardware::cpu_with(Choice { machine: Instructions::Amx, cap }, false);
        assert_eq!(intel(None).best(), ComputeType::Bf16);
        let capped = intel(Some(Instructions::Avx512Bf16));
        assert_eq!(capped.best(), ComputeType::F32);
        assert!(matches!(capped.bf16, Support::Slow(why) if why.starts_with("without AMX")));
    }
}
