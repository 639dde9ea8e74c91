//! Measured peak speeds of the CPU: floating-point operations per second in registers, and bytes per second
//! to and from memory.
//!
//! The speed of an op or of a training step is compared with these peaks. Both measurements use every thread
//! of the rayon pool and take the best of a few short runs; they give what this machine reaches now, which
//! may differ from its data sheet. They use no op.

mod cpu;
pub mod gpu;

use candle_core::DType;

/// Measures the floating-point operations per second (a multiply-add is two) of products of type `dtype` with
/// f32 accumulation.
///
/// For bf16 this is the speed of the bf16 dot-product instruction if the processor has one. A type without
/// its own instruction is widened to f32, so its peak is that of f32. Takes about 0.2 s.
pub fn flops_per_second(dtype: DType) -> f64 {
    cpu::flops_per_second(dtype)
}

/// Measures the bytes per second of `a = b + s c` over three arrays of 256 MiB in total, far more than the
/// caches hold. Each element counts as two reads and a write, as in STREAM's triad (McCalpin 1995). Takes
/// about 0.3 s.
pub fn bytes_per_second() -> f64 {
    cpu::bytes_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_peak_and_memory_a_speed() {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let flops = flops_per_second(dtype);
            assert!(flops.is_finite() && flops > 1e6, "{dtype:?}: {flops}");
        }
        let bytes = bytes_per_second();
        assert!(bytes.is_finite() && bytes > 1e6, "{bytes}");
    }
}
