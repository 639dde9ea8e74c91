//! What the processor has, and what the system lets this process use.

use super::Instructions;

/// The most that may be used here.
#[cfg(target_arch = "x86_64")]
pub(super) fn best() -> Instructions {
    if pulp::x86::V4::try_new().is_none() {
        return if pulp::x86::V3::try_new().is_some() { Instructions::Avx2 } else { Instructions::Baseline };
    }
    match std::arch::is_x86_feature_detected!("avx512bf16") {
        false => Instructions::Avx512,
        true if amx::is_there() && amx::is_permitted() => Instructions::Amx,
        true => Instructions::Avx512Bf16,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn best() -> Instructions {
    Instructions::Baseline
}

/// Whether a dot product of bf16 (`vdpbf16ps`) does more than the fused multiply-add of f32 in the same time. AMD's
/// do, twice as much; Intel's do not: measured on Sapphire Rapids, products reach half of what f32 does, and
/// Intel's answer is AMX.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_quick_dots() -> bool {
    const INTEL: [[u8; 4]; 3] = [*b"Genu", *b"ineI", *b"ntel"];
    let vendor = std::arch::x86_64::__cpuid_count(0, 0);
    [vendor.ebx, vendor.edx, vendor.ecx] != INTEL.map(u32::from_le_bytes)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn has_quick_dots() -> bool {
    false
}

/// The widest vectors within `limit` that the processor has.
#[cfg(target_arch = "x86_64")]
pub(super) fn arch(limit: Instructions) -> pulp::Arch {
    use pulp::Arch;
    use pulp::x86::V3;
    use pulp::x86::V4;
    let wide = V4::try_new().filter(|_| limit >= Instructions::Avx512).map(Arch::V4);
    wide.or_else(|| V3::try_new().filter(|_| limit >= Instructions::Avx2).map(Arch::V3))
        .unwrap_or(Arch::Scalar)
}

/// The caps are names of x86-64: elsewhere there is nothing to leave out.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn arch(_: Instructions) -> pulp::Arch {
    pulp::Arch::new()
}

#[cfg(target_arch = "x86_64")]
pub(super) fn features() -> Vec<&'static str> {
    macro_rules! those_of {
        ($($name:tt as $shown:tt),*) => {
            [$((std::arch::is_x86_feature_detected!($name), $shown)),*]
        };
    }
    let asked = those_of!(
        "sse4.2" as "sse4_2", "avx" as "avx", "fma" as "fma", "f16c" as "f16c", "avx2" as "avx2",
        "avx512f" as "avx512f", "avx512bw" as "avx512bw", "avx512cd" as "avx512cd", "avx512dq" as "avx512dq",
        "avx512vl" as "avx512vl", "avx512vnni" as "avx512_vnni", "avx512bf16" as "avx512_bf16",
        "avx512fp16" as "avx512_fp16"
    );
    let amx = [(amx::is_there(), "amx_tile"), (amx::is_there(), "amx_bf16")];
    asked.into_iter().chain(amx).filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect()
}

#[cfg(target_arch = "aarch64")]
pub(super) fn features() -> Vec<&'static str> {
    macro_rules! those_of {
        ($($name:tt as $shown:tt),*) => {
            [$((std::arch::is_aarch64_feature_detected!($name), $shown)),*]
        };
    }
    let asked = those_of!("neon" as "asimd", "fp16" as "asimdhp", "sve" as "sve", "bf16" as "bf16");
    asked.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn features() -> Vec<&'static str> {
    Vec::new()
}

/// AMX, of which the standard library does not know yet.
#[cfg(target_arch = "x86_64")]
mod amx {
    use std::arch::x86_64::__cpuid_count;
    use std::sync::LazyLock;

    /// AMX-TILE and AMX-BF16, leaf 7 of CPUID.
    pub(super) fn is_there() -> bool {
        const AMX_BF16: u32 = 1 << 22;
        const AMX_TILE: u32 = 1 << 24;
        const BOTH: u32 = AMX_BF16 | AMX_TILE;
        __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & BOTH == BOTH
    }

    /// Asks Linux for the registers, once. It gives them to a process that asks only, for all of its threads
    /// (`Documentation/arch/x86/xstate.rst`).
    pub(super) fn is_permitted() -> bool {
        static PERMITTED: LazyLock<bool> = LazyLock::new(ask);
        *PERMITTED
    }

    #[cfg(target_os = "linux")]
    fn ask() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        // SAFETY: the call reads no memory of ours; a system that does not know it says so.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn ask() -> bool {
        false
    }
}
