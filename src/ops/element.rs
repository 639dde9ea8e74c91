//! The number types of activations and matrix products, and their conversion to f32 and back.
//!
//! Arithmetic is f32 everywhere: a value is widened when it is read and rounded once, to the nearest with
//! ties to even, when it is written. Both conversions are branch-free bit arithmetic, so a loop over them
//! vectorises and gives the same bits on every machine.

use candle_core::{CpuStorage, DType, WithDType};
use half::{bf16, f16};

/// A number type of activations: f32, bf16 or f16.
pub trait Element: WithDType + Send + Sync + 'static {
    /// Converts to f32, exactly.
    fn widen(self) -> f32;

    /// Rounds to the nearest value of this type; NaN stays NaN, values that are too large become infinite.
    fn narrow(value: f32) -> Self;

    /// Returns a row as f32, exactly: the row itself if it is f32, else a copy in `buffer`, which must be at
    /// least as long as the row. For loops that read a row several times.
    #[inline(always)]
    fn widen_row<'a>(row: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32] {
        let buffer = &mut buffer[..row.len()];
        for (wide, value) in buffer.iter_mut().zip(row) {
            *wide = value.widen();
        }
        buffer
    }

    /// The values of `storage`; `None` if it is of another type.
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn widen_row<'a>(row: &'a [Self], _: &'a mut [f32]) -> &'a [f32] {
        row
    }

    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::F32(values) = storage { Some(values) } else { None }
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // Rounding could turn a NaN into infinity, so every NaN becomes the quiet NaN.
        Self::from_bits(if value.is_nan() { 0x7fc0 } else { rounded as u16 })
    }

    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::BF16(values) = storage { Some(values) } else { None }
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        /// Factor that moves the exponent from f16's bias of 15 to f32's bias of 127. The product is exact,
        /// also for values that are subnormal in f16.
        const REBIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
        let bits = u32::from(self.to_bits());
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * REBIAS;
        // f16's largest exponent means infinity or NaN, but the product of such a value has an ordinary f32
        // exponent: set the exponent bits of f32.
        let magnitude =
            if bits & 0x7c00 == 0x7c00 { magnitude.to_bits() | 0x7f80_0000 } else { magnitude.to_bits() };
        f32::from_bits(magnitude | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        /// Adding this to a value that is subnormal in f16 leaves the rounded value in the low bits of the
        /// sum.
        const SUBNORMAL: f32 = f32::from_bits((127 - 15 + 23 - 10 + 1) << 23);
        let sign = value.to_bits() >> 16 & 0x8000;
        let bits = value.to_bits() & 0x7fff_ffff;
        let subnormal = (f32::from_bits(bits) + SUBNORMAL).to_bits().wrapping_sub(SUBNORMAL.to_bits());
        let odd = bits >> 13 & 1;
        let normal = bits.wrapping_add(0xfff + odd).wrapping_sub((127 - 15) << 23) >> 13;
        let finite = if bits < 0x3880_0000 { subnormal } else { normal };
        // Values of 65520 and more round to infinity.
        let magnitude = if bits >= 0x477f_f000 { 0x7c00 } else { finite };
        let magnitude = if bits > 0x7f80_0000 { 0x7e00 } else { magnitude };
        Self::from_bits((sign | magnitude) as u16)
    }

    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::F16(values) = storage { Some(values) } else { None }
    }
}

/// Runs `$body` with `$T` bound to the Rust type of a tensor's elements. The form
/// `by_dtype!(of dtype, "op", T => ..)` takes a dtype instead of a tensor. A dtype other than f32, bf16 and
/// f16 is an error that names the op.
macro_rules! by_dtype {
    ($op:expr, $tensor:expr, $T:ident => $body:expr) => {
        $crate::element::by_dtype!(of $tensor.dtype(), $op, $T => $body)
    };
    (of $dtype:expr, $op:expr, $T:ident => $body:expr) => {
        match $dtype {
            candle_core::DType::F32 => {
                type $T = f32;
                $body
            }
            candle_core::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            candle_core::DType::F16 => {
                type $T = half::f16;
                $body
            }
            other => candle_core::bail!("{}: no implementation for {other:?}", $op),
        }
    };
}
pub(crate) use by_dtype;

/// Largest relative error of rounding to `dtype`: half a unit in the last place.
pub fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_equals_the_half_crate_and_is_reversible() {
        for bits in 0..=u16::MAX {
            let b = bf16::from_bits(bits);
            let f = f16::from_bits(bits);
            if b.is_nan() {
                assert!(Element::widen(b).is_nan() && <bf16 as Element>::narrow(Element::widen(b)).is_nan());
            } else {
                assert_eq!(Element::widen(b).to_bits(), b.to_f32().to_bits());
                assert_eq!(<bf16 as Element>::narrow(Element::widen(b)).to_bits(), bits);
            }
            if f.is_nan() {
                assert!(Element::widen(f).is_nan() && <f16 as Element>::narrow(Element::widen(f)).is_nan());
            } else {
                assert_eq!(Element::widen(f).to_bits(), f.to_f32().to_bits());
                assert_eq!(<f16 as Element>::narrow(Element::widen(f)).to_bits(), bits);
            }
        }
    }

    /// Tries values around every 16-bit float, including its midpoints to the neighbouring floats, and values
    /// of all magnitudes.
    #[test]
    fn narrowing_rounds_as_the_half_crate_does() {
        let around = (0..=u16::MAX).flat_map(|h| {
            let b = bf16::from_bits(h).to_f32().to_bits();
            let f = f16::from_bits(h).to_f32().to_bits();
            [
                b.wrapping_add(0x7fff),
                b.wrapping_add(0x8000),
                b.wrapping_add(0x8001),
                f.wrapping_add(0x0fff),
                f.wrapping_add(0x1000),
            ]
        });
        for bits in around.chain((0..=u32::MAX).step_by(65_521)) {
            let value = f32::from_bits(bits);
            if !value.is_nan() {
                assert_eq!(
                    <bf16 as Element>::narrow(value).to_bits(),
                    bf16::from_f32(value).to_bits(),
                    "bf16 {value:e}"
                );
                assert_eq!(
                    <f16 as Element>::narrow(value).to_bits(),
                    f16::from_f32(value).to_bits(),
                    "f16 {value:e}"
                );
            }
        }
    }
}
