//! The vector instructions that CPU code may use: those that the processor has, or fewer if the user sets a
//! cap.
//!
//! Only this module queries the processor (`machine.rs`) and the environment variable `MLMTRAIN_CPU`, once
//! each; every choice between kernels follows from [`in_use`]. A cap can only lower the choice, so code for
//! instructions that the processor lacks is never run.

mod machine;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::sync::LazyLock;

use crate::error::Problem;

/// The environment variable that sets the cap.
pub const VARIABLE: &str = "MLMTRAIN_CPU";

/// Sets of vector instructions; each set includes all sets before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// The instructions that every processor of the architecture has.
    Baseline,
    /// AVX2 and fused multiply-add: vectors of 256 bits.
    Avx2,
    /// AVX-512 F, BW, CD, DQ, VL: vectors of 512 bits.
    Avx512,
    /// Dot products of bf16.
    Avx512Bf16,
    /// Products of whole tiles of bf16.
    Amx,
}

impl Instructions {
    /// The allowed caps.
    pub const CAPS: [Self; 4] = [Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::Amx];

    /// The name of this set in the variable `MLMTRAIN_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Amx => "amx",
        }
    }

    /// The usual name of this set, for messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Baseline if cfg!(target_arch = "x86_64") => "SSE2",
            Self::Baseline if cfg!(target_arch = "aarch64") => "NEON",
            Self::Baseline => "plain code",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Avx512Bf16 => "AVX-512-BF16",
            Self::Amx => "AMX",
        }
    }

    /// Returns true if this set has instructions for bf16 products.
    pub fn multiply_bf16(self) -> bool {
        self >= Self::Avx512Bf16
    }
}

/// The instructions of the processor, and the user's cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The largest set that the processor has and the system permits.
    pub machine: Instructions,
    /// The largest set that the user allows; `None` if there is no cap.
    pub cap: Option<Instructions>,
}

impl Choice {
    /// Parses the value of [`VARIABLE`]; an empty value means no cap.
    pub fn new(value: Option<&OsStr>, machine: Instructions) -> Result<Self, Problem> {
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Ok(Self { machine, cap: None });
        };
        let cap = Instructions::CAPS.into_iter().find(|cap| value == cap.name()).ok_or_else(|| {
            let names = Instructions::CAPS.map(|cap| format!("`{}`", cap.name())).join(", ");
            Problem::usage(format!("`{}` is not a set of instructions", value.to_string_lossy()))
                .at(VARIABLE)
                .hint(format!("set it to one of {names}, or unset it to use all that the processor has"))
        })?;
        Ok(Self { machine, cap: Some(cap) })
    }

    /// The largest set that may be used.
    pub fn in_use(self) -> Instructions {
        self.cap.map_or(self.machine, |cap| cap.min(self.machine))
    }

    /// A message about the effect of the cap; `None` if there is no cap, or if it equals the processor's set.
    pub fn note(self) -> Option<String> {
        let cap = self.cap?;
        let machine = self.machine;
        let says = format!("note: {VARIABLE}={}", cap.name());
        match cap.cmp(&machine) {
            std::cmp::Ordering::Less => Some(format!(
                "{says} keeps the CPU's code to {}; this processor has {}",
                cap.title(),
                machine.title()
            )),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(format!(
                "{says} has no effect: the best that this processor has, and the system permits, is {}",
                machine.title()
            )),
        }
    }
}

static CHOICE: LazyLock<Result<Choice, Problem>> =
    LazyLock::new(|| Choice::new(std::env::var_os(VARIABLE).as_deref(), machine::best()));

static IN_USE: LazyLock<Instructions> =
    LazyLock::new(|| choice().map_or_else(|_| machine::best(), Choice::in_use));

static ARCH: LazyLock<pulp::Arch> = LazyLock::new(|| machine::arch(in_use()));

/// Returns the choice of this process, or an error if the value of [`VARIABLE`] is invalid. A program calls
/// this before it computes.
pub fn choice() -> Result<Choice, Problem> {
    CHOICE.clone()
}

/// The largest set of instructions that this process may use.
#[inline]
pub fn in_use() -> Instructions {
    *IN_USE
}

/// Returns true if bf16 products with AVX-512-BF16 are faster than f32 products with AVX-512.
pub fn has_quick_dots() -> bool {
    machine::has_quick_dots()
}

/// The set [`in_use`] as a `pulp` token, for loops that the compiler vectorises.
#[inline]
pub fn arch() -> pulp::Arch {
    *ARCH
}

/// The features of the processor that matter for this program, by their names in Linux's `/proc/cpuinfo`.
pub fn features() -> Vec<&'static str> {
    machine::features()
}
