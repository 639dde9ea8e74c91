//! Plain loops compiled for the vector instructions of this machine, and elementary functions (exp, erf,
//! tanh) for use in such loops.
//!
//! The functions are branch-free, so a loop over them vectorises. They use fused multiply-add, which rounds
//! once and equally on all machines: a result does not depend on the instruction set that was found at run
//! time.

use std::array::from_fn;

use base::instructions;

/// Defines functions whose body is compiled once for each instruction set; a call runs the version for the
/// widest set that may be used (see [`base::instructions`]).
/// `kernel! { fn name(x: &[f32], y: &mut [f32]) { .. } }` is called as `name(x, y)`. Type parameters are
/// number types: `fn name<T>(x: &[T])` is generic over every [`crate::element::Element`]. After a semicolon,
/// one more with a bound of its own may follow: `fn name<T; F: Bound>(x: &[T])`.
///
/// Only code that is inlined into the body profits. Mark every function that it calls and that has a loop or
/// a fused multiply-add `#[inline(always)]`, and write loops rather than iterator adaptors with large
/// closures. Code that is not inlined is compiled for the oldest machine, where each fused multiply-add is a
/// call into the C library, fifty times slower.
macro_rules! kernel {
    ($(
        $(#[$attribute:meta])* $visibility:vis fn $name:ident $(<$($T:ident),+ $(; $F:ident: $bound:ident)?>)? ($($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)? $body:block
    )+) => {$(
        $(#[$attribute])*
        $visibility fn $name $(<$($T: $crate::element::Element),+ $(, $F: $bound)?>)? ($($argument: $type),*) $(-> $output)? {
            struct Kernel<A, F>(A, std::marker::PhantomData<F>);
            impl $(<$($T: $crate::element::Element),+ $(, $F: $bound)?>)? pulp::WithSimd
                for Kernel<($($type,)*), ($($($F,)?)?)>
            {
                type Output = $crate::simd::kernel!(@output $($output)?);
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) -> Self::Output {
                    let ($($argument,)*) = self.0;
                    $body
                }
            }
            base::instructions::arch().dispatch(Kernel(
                ($($argument,)*),
                std::marker::PhantomData::<($($($F,)?)?)>,
            ))
        }
    )+};
    (@output) => { () };
    (@output $output:ty) => { $output };
}
pub(crate) use kernel;

/// Runs a closure of a few lines with wide vector instructions, as [`kernel`] does. A larger closure is not
/// inlined and gains nothing.
#[inline]
pub fn run<R>(f: impl FnOnce() -> R) -> R {
    instructions::arch().dispatch(f)
}

/// Number of independent f32 partial sums: enough to hide the latency of an addition.
const LANES: usize = 32;

/// Sum over `i` of `f([inputs[0][i], inputs[1][i], ...])`, for inputs that are at least as long as the first,
/// in 32 interleaved partial sums that are added in a fixed order. `f` must be a few operations: a larger
/// function, such as [`exp_f32`], would not be inlined.
#[inline(always)]
pub fn sum_of<T: Copy, const N: usize>(inputs: [&[T]; N], f: impl Fn([T; N]) -> f32) -> f32 {
    let len = inputs[0].len();
    let inputs = inputs.map(|input| input[..len].as_chunks::<LANES>());
    let mut lanes = [0.0f32; LANES];
    for chunk in 0..len / LANES {
        // A new array instead of a loop that updates the sums: the compiler keeps it in registers.
        let chunks = inputs.map(|(whole, _)| &whole[chunk]);
        lanes = from_fn(|lane| lanes[lane] + f(chunks.map(|chunk| chunk[lane])));
    }
    for (lane, sum) in lanes.iter_mut().enumerate().take(len % LANES) {
        *sum += f(inputs.map(|(_, rest)| rest[lane]));
    }
    fold(lanes, |a, b| a + b)
}

/// Number of independent f64 partial sums.
const DOUBLE_LANES: usize = 16;

/// Sum of squares in f64, in which the square of any f32 is exact, in 16 interleaved partial sums that are
/// added in order.
#[inline(always)]
pub fn sum_of_squares(x: &[f32]) -> f64 {
    let mut lanes = [0.0f64; DOUBLE_LANES];
    let (whole, rest) = x.as_chunks::<DOUBLE_LANES>();
    for chunk in whole {
        for (sum, v) in lanes.iter_mut().zip(chunk) {
            *sum = f64::from(*v).mul_add(f64::from(*v), *sum);
        }
    }
    for (sum, v) in lanes.iter_mut().zip(rest) {
        *sum = f64::from(*v).mul_add(f64::from(*v), *sum);
    }
    lanes.iter().sum()
}

/// Sum of `exp(v - shift)` over the values `v` of `x`, added in the same order as by [`sum_of`].
#[inline(always)]
pub fn sum_exp(x: &[f32], shift: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (sum, v) in lanes.iter_mut().zip(chunk) {
            *sum += exp_f32(v - shift);
        }
    }
    for (sum, v) in lanes.iter_mut().zip(rest) {
        *sum += exp_f32(v - shift);
    }
    fold(lanes, |a, b| a + b)
}

/// The largest value; NaN values are ignored, and an empty slice gives negative infinity.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (max, v) in lanes.iter_mut().zip(chunk) {
            *max = if *v > *max { *v } else { *max };
        }
    }
    for (max, v) in lanes.iter_mut().zip(rest) {
        *max = if *v > *max { *v } else { *max };
    }
    fold(lanes, |a, b| if b > a { b } else { a })
}

#[inline(always)]
fn fold(lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let lanes: [f32; 16] = from_fn(|i| f(lanes[i], lanes[i + 16]));
    let lanes: [f32; 8] = from_fn(|i| f(lanes[i], lanes[i + 8]));
    let lanes: [f32; 4] = from_fn(|i| f(lanes[i], lanes[i + 4]));
    f(f(lanes[0], lanes[2]), f(lanes[1], lanes[3]))
}

/// Adding and subtracting this rounds an f32 below 2^22 to the nearest whole number.
const ROUND: f32 = 12_582_912.0;

/// e^x with a relative error below 2e-7 (about 1.5 units in the last place); 0 below -87.33 (no subnormal
/// results), infinity above 88.72, NaN for NaN.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // x = n ln 2 + r with |r| <= ln 2 / 2; e^r by the polynomial of Cephes' expf.
    let clamped = x.clamp(-88.0, 89.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let mut p = 1.987_569_1e-4_f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = p.mul_add(r, c);
    }
    let p = p.mul_add(r * r, r) + 1.0;
    // The low bits of the shifted number are n. A cast to i32 would saturate, which no vector instruction
    // does. 2^n is computed as two factors, because n reaches 128, which does not fit into one exponent
    // field.
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = exponent >> 1;
    let y = p * power_of_two(half) * power_of_two(exponent.wrapping_sub(half));
    if x < -87.33 { 0.0 } else { y }
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The error function with an absolute error below 4e-7: the rational approximation of XLA and Eigen.
#[inline(always)]
pub fn erf_f32(x: f32) -> f32 {
    const NUMERATOR: [f32; 6] =
        [2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906_3e-4, -2.954_6e-3, -1.609_603_3e-2];
    const DENOMINATOR: [f32; 4] = [-2.133_740_6e-4, -1.682_827_e-3, -7.373_329_e-3, -1.426_473_9e-2];
    let x = x.clamp(-4.0, 4.0);
    let x2 = x * x;
    let mut p = -2.726_142_3e-10_f32;
    for c in NUMERATOR {
        p = p.mul_add(x2, c);
    }
    let mut q = -1.456_607_2e-5_f32;
    for c in DENOMINATOR {
        q = q.mul_add(x2, c);
    }
    x * p / q
}

/// The hyperbolic tangent with an absolute error below 4e-7: the rational approximation of Eigen.
#[inline(always)]
pub fn tanh_f32(x: f32) -> f32 {
    const NUMERATOR: [f32; 6] =
        [2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_4e-5, 6.372_619_3e-4, 4.893_524_6e-3];
    const DENOMINATOR: [f32; 3] = [1.185_347_1e-4, 2.268_434_6e-3, 4.893_525e-3];
    let x = x.clamp(-7.905_311, 7.905_311);
    let x2 = x * x;
    let mut p = -2.760_768_5e-16_f32;
    for c in NUMERATOR {
        p = p.mul_add(x2, c);
    }
    let mut q = 1.198_258_4e-6_f32;
    for c in DENOMINATOR {
        q = q.mul_add(x2, c);
    }
    x * p / q
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(low: f64, high: f64) -> impl Iterator<Item = f32> {
        (0..=200_000).map(move |i| (low + (high - low) * f64::from(i) / 200_000.0) as f32)
    }

    #[test]
    fn exp_is_within_its_stated_error() {
        let worst = sweep(-87.3, 88.7)
            .map(|x| (f64::from(exp_f32(x)) / f64::from(x).exp() - 1.0).abs())
            .fold(0.0, f64::max);
        assert!(worst < 2e-7, "{worst:e}");
        assert_eq!((exp_f32(0.0), exp_f32(-88.0), exp_f32(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((exp_f32(89.0), exp_f32(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        assert!(exp_f32(f32::NAN).is_nan());
    }

    #[test]
    fn erf_and_tanh_are_within_their_stated_error() {
        let erf = sweep(-6.0, 6.0)
            .map(|x| (f64::from(erf_f32(x)) - candle_core::cpu::erf::erf_f64(f64::from(x))).abs())
            .fold(0.0, f64::max);
        assert!(erf < 4e-7, "{erf:e}");
        let tanh = sweep(-12.0, 12.0)
            .map(|x| (f64::from(tanh_f32(x)) - f64::from(x).tanh()).abs())
            .fold(0.0, f64::max);
        assert!(tanh < 4e-7, "{tanh:e}");
        assert!(erf_f32(f32::NAN).is_nan() && tanh_f32(f32::NAN).is_nan());
        assert_eq!((erf_f32(0.0), tanh_f32(0.0)), (0.0, 0.0));
    }

    #[test]
    fn sums_and_maxima_include_every_value() {
        for len in [0usize, 1, 31, 32, 33, 1000] {
            let x: Vec<f32> = (0..len).map(|i| (i * 37 % len.max(1)) as f32).collect();
            let largest = if len == 0 { f32::NEG_INFINITY } else { (len - 1) as f32 };
            let want = [(len * len.saturating_sub(1) / 2) as f32, largest, len as f32];
            assert_eq!(
                [sum_of([&x[..]], |[v]| v), max(&x), sum_exp(&vec![2.5; len], 2.5)].map(f32::to_bits),
                want.map(f32::to_bits)
            );
        }
    }

    #[test]
    fn the_instruction_set_does_not_change_a_bit() {
        let inputs: Vec<f32> = sweep(-20.0, 20.0).collect();
        let plain: Vec<[f32; 3]> = inputs.iter().map(|&x| [exp_f32(x), erf_f32(x), tanh_f32(x)]).collect();
        let wide: Vec<[f32; 3]> =
            run(|| inputs.iter().map(|&x| [exp_f32(x), erf_f32(x), tanh_f32(x)]).collect());
        assert_eq!(plain, wide);
    }
}
