//! Which vector instructions code for the CPU may use: those that the processor has, or fewer where the user
//! says so.
//!
//! This is the only place that asks the processor (`machine.rs`) and the variable `MLMTRAIN_CPU`, once each;
//! every choice between kernels follows from [`in_use`]. A cap never raises: code for instructions that the
//! processor lacks cannot be reached.

mod machine;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::sync::LazyLock;

use candle_core::DType;

use base::error::Problem;

/// The variable that holds the cap.
pub const VARIABLE: &str = "MLMTRAIN_CPU";

/// Sets of vector instructions, each with all of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// What every processor of the architecture has.
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
    /// What a cap may be.
    pub const CAPS: [Self; 4] = [Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::Amx];

    /// As the variable has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Amx => "amx",
        }
    }

    /// As people call it.
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

    /// What products of this type take where all of `self` may be used: only those of bf16 have instructions
    /// of their own.
    #[must_use]
    pub fn of_products(self, dtype: DType) -> Self {
        if dtype == DType::BF16 { self } else { self.min(Self::Avx512) }
    }

    /// Whether products of bf16 have instructions of their own.
    pub fn multiply_bf16(self) -> bool {
        self >= Self::Avx512Bf16
    }
}

/// What the processor has, and what the user lets it use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The most that the processor has and the system permits.
    pub machine: Instructions,
    /// The most that is wanted.
    pub cap: Option<Instructions>,
}

impl Choice {
    /// The choice for this value of [`VARIABLE`]; an empty one is none.
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

    /// What may be used.
    pub fn in_use(self) -> Instructions {
        self.cap.map_or(self.machine, |cap| cap.min(self.machine))
    }

    /// What a user should know of the cap; `None` without one, or where it is what the processor has.
    pub fn note(self) -> Option<String> {
        let (cap, machine) = (self.cap?, self.machine);
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

/// The choice of this process; an error where the variable is wrong, which a program asks for before it
/// computes.
pub fn choice() -> Result<Choice, Problem> {
    CHOICE.clone()
}

/// What may be used in this process.
#[inline]
pub fn in_use() -> Instructions {
    *IN_USE
}

/// Whether products of bf16 by AVX-512-BF16 are faster than those of f32 by AVX-512.
pub fn has_quick_dots() -> bool {
    machine::has_quick_dots()
}

/// The same for loops that the compiler turns into vector instructions.
#[inline]
pub fn arch() -> pulp::Arch {
    *ARCH
}

/// What the processor says that it has, by the names that Linux gives in `/proc/cpuinfo`, as far as it
/// matters here.
pub fn features() -> Vec<&'static str> {
    machine::features()
}
