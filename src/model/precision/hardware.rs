//! Support of the hardware for each number type.

use candle_core::{DType, Device};

use base::instructions;
use base::instructions::{Choice, Instructions};
use config::ComputeType;
use ops::cuda;

/// Compute capability of the first GPU generation with bf16.
const AMPERE: (u32, u32) = (8, 0);

/// Support for a number type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// The hardware has instructions for the type.
    Native,
    /// The type works, but is no faster than f32; the text says why, and what would be better.
    Slow(String),
    /// The type is not supported.
    Missing,
}

/// A device as the precision policy sees it. Every device can compute in f32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// Name in messages.
    pub name: String,
    /// Support of bf16.
    pub bf16: Support,
    /// Support of f16.
    pub f16: Support,
    /// Note for a user who set a cap on the CPU's instructions.
    pub cap: Option<String>,
}

impl Hardware {
    /// The hardware of `device`.
    pub fn of(device: &Device) -> Self {
        match device {
            Device::Cpu => Self::cpu(),
            other => cuda::properties(other).map_or_else(
                // Of an unknown device, only f32 is promised.
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

    /// A GPU: tensor cores of Turing support f16, and those of Ampere and newer also bf16.
    pub fn gpu(gpu: &cuda::Properties) -> Self {
        let name = format!("GPU {} `{}`", gpu.ordinal, gpu.name);
        let bf16 = if gpu.capability >= AMPERE { Support::Native } else { Support::Missing };
        Self { name, bf16, f16: Support::Native, cap: None }
    }

    /// The CPU that this process runs on, within the cap on its instructions. Half types work on every CPU:
    /// values are widened to f32 if there are no instructions for them.
    pub fn cpu() -> Self {
        let choice = instructions::choice();
        let choice = choice.unwrap_or_else(|_| Choice { machine: instructions::in_use(), cap: None });
        Self::cpu_with(choice, instructions::has_quick_dots())
    }

    fn cpu_with(choice: Choice, has_quick_dots: bool) -> Self {
        let bf16 = match choice.in_use() {
            Instructions::Amx => Support::Native,
            Instructions::Avx512Bf16 if has_quick_dots => Support::Native,
            Instructions::Avx512Bf16 => Support::Slow(
                "without AMX, which the system hides or MLMTRAIN_CPU leaves out, this CPU multiplies f32 faster; \
                 activations take half the memory all the same"
                    .to_string(),
            ),
            _ => Support::Slow(widened(choice)),
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

    /// The fastest type. Of the half types bf16 comes first, because it needs no loss scale.
    pub fn best(&self) -> ComputeType {
        match (&self.bf16, &self.f16) {
            (Support::Native, _) => ComputeType::Bf16,
            (_, Support::Native) => ComputeType::F16,
            _ => ComputeType::F32,
        }
    }

    /// Support for `dtype`.
    pub fn support(&self, dtype: DType) -> Support {
        match dtype {
            DType::F32 => Support::Native,
            DType::BF16 => self.bf16.clone(),
            DType::F16 => self.f16.clone(),
            _ => Support::Missing,
        }
    }
}

/// The note for a CPU that widens bf16 to f32.
fn widened(choice: Choice) -> String {
    let why = match choice.cap {
        Some(cap) if choice.machine.multiply_bf16() => {
            format!("{}={} leaves out AVX-512-BF16", instructions::VARIABLE, cap.name())
        }
        _ => {
            "this CPU has no AVX-512-BF16 (AMD Zen 4 and later) and no AMX (Intel Sapphire Rapids and later)"
                .to_string()
        }
    };
    format!("{why}, so values are widened to f32; activations take half the memory all the same")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_type_of_a_cpu_follows_the_cap() {
        assert_eq!(best(true, Instructions::Amx, None), ComputeType::Bf16);
        assert_eq!(best(true, Instructions::Amx, Some(Instructions::Avx512Bf16)), ComputeType::Bf16);
        assert_eq!(best(true, Instructions::Amx, Some(Instructions::Avx512)), ComputeType::F32);
        assert_eq!(
            best(true, Instructions::Avx2, Some(Instructions::Amx)),
            ComputeType::F32,
            "a cap raises nothing"
        );
        insta::assert_snapshot!(why(Instructions::Amx, Some(Instructions::Avx2)), @"MLMTRAIN_CPU=avx2 leaves out AVX-512-BF16, so values are widened to f32; activations take half the memory all the same");
        let lacking = why(Instructions::Avx2, Some(Instructions::Amx));
        assert!(lacking.starts_with("this CPU has no AVX-512-BF16 "), "{lacking}");
        // On Intel CPUs only AMX is quick.
        assert_eq!(best(false, Instructions::Amx, None), ComputeType::Bf16);
        let capped = cpu(false, Instructions::Amx, Some(Instructions::Avx512Bf16));
        assert_eq!(capped.best(), ComputeType::F32);
        assert!(matches!(capped.bf16, Support::Slow(why) if why.starts_with("without AMX")));
    }

    fn cpu(has_quick_dots: bool, machine: Instructions, cap: Option<Instructions>) -> Hardware {
        Hardware::cpu_with(Choice { machine, cap }, has_quick_dots)
    }

    fn best(has_quick_dots: bool, machine: Instructions, cap: Option<Instructions>) -> ComputeType {
        cpu(has_quick_dots, machine, cap).best()
    }

    /// The reason why bf16 is slow.
    fn why(machine: Instructions, cap: Option<Instructions>) -> String {
        match cpu(true, machine, cap).bf16 {
            Support::Slow(why) => why,
            other => panic!("{other:?}"),
        }
    }
}
