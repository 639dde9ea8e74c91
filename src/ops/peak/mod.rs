//! What the machine can do at most, measured: multiply-adds a second in registers, bytes a second to and from
//! memory.
//!
//! These are what the speed of an op or of a training step is compared with. Both use every thread of the
//! rayon pool, take the best of a few short runs, and say what this machine reaches now, not what its data
//! sheet says. They know no op.

mod cpu;
pub mod gpu;

use candle_core::DType;

/// Floating-point operations a second (two for a multiply-add) of products of type `dtype` with f32 sums.
///
/// For bf16 that of its own dot-product instruction where there is one. A type without one is widened, so
/// that its peak is the one of f32. Takes about 0.2 s.
pub fn flops_per_second(dtype: DType) -> f64 {
    cpu::flops_per_second(dtype)
}

/// Bytes a second of `a = b + s c` over three arrays of 256 MiB together, far more than the caches hold: two
/// reads and a write an element, as STREAM counts its triad (McCalpin 1995). Takes about 0.3 s.
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
