//! Detection of the processor's vector instructions, and of those that the operating system permits.

use super::Instructions;

/// The largest set of instructions that the processor has and the system permits.
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

/// Returns true if bf16 dot products (`vdpbf16ps`) are faster than f32 fused multiply-adds. On AMD processors
/// they do twice as much in the same time. On Intel processors they do not: we measured half the speed of f32
/// products on Sapphire Rapids, where AMX is the fast way.
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

/// The widest vector instructions that the processor has, but none above `limit`.
#[cfg(target_arch = "x86_64")]
pub(super) fn arch(limit: Instructions) -> pulp::Arch {
    use pulp::Arch;
    use pulp::x86::{V3, V4};
    let wide = V4::try_new().filter(|_| limit >= Instructions::Avx512).map(Arch::V4);
    wide.or_else(|| V3::try_new().filter(|_| limit >= Instructions::Avx2).map(Arch::V3))
        .unwrap_or(Arch::Scalar)
}

/// All caps name x86-64 instructions, so on other architectures a cap excludes nothing.
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

/// Detection of AMX, which the standard library does not support yet.
#[cfg(target_arch = "x86_64")]
mod amx {
    use std::arch::x86_64::__cpuid_count;
    use std::sync::LazyLock;

    /// Returns true if the processor has AMX-TILE and AMX-BF16, from leaf 7 of CPUID.
    pub(super) fn is_there() -> bool {
        const AMX_BF16: u32 = 1 << 22;
        const AMX_TILE: u32 = 1 << 24;
        const BOTH: u32 = AMX_BF16 | AMX_TILE;
        __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & BOTH == BOTH
    }

    /// Requests the tile registers from Linux, once for all threads of this process; Linux grants them only
    /// to processes that request them (`Documentation/arch/x86/xstate.rst`). Returns true if they were
    /// granted.
    pub(super) fn is_permitted() -> bool {
        static PERMITTED: LazyLock<bool> = LazyLock::new(ask);
        *PERMITTED
    }

    #[cfg(target_os = "linux")]
    fn ask() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        // SAFETY: the call does not access memory of this process; a system without this call returns an
        // error.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn ask() -> bool {
        false
    }
}
