//! Bias and activation on the CPU, one pass over the rows each way.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::activation::Function;
use crate::element::Element;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values, values_or_zeros, with_slice_mut};
use crate::{parallel, simd};

/// The cumulative distribution function of the standard normal distribution.
#[inline(always)]
pub(crate) fn phi_integral(u: f32) -> f32 {
    0.5 * (1.0 + simd::erf_f32(u * std::f32::consts::FRAC_1_SQRT_2))
}

/// The density of the standard normal distribution.
#[inline(always)]
pub(crate) fn phi(u: f32) -> f32 {
    const INVERSE_ROOT_TAU: f32 = 0.398_942_3;
    INVERSE_ROOT_TAU * simd::exp_f32(-0.5 * u * u)
}

/// `P(u)` and `p(u)` of the tanh form, in place of [`phi_integral`] and [`phi`] of the erf form. Computed
/// with an exponential, so that both are accurate where `P` is near 0 or 1: with a hyperbolic tangent near 1,
/// `1 - P` would lose all digits.
#[inline(always)]
fn tanh_share_and_slope(u: f32) -> (f32, f32) {
    const TWICE_ROOT_TWO_OVER_PI: f32 = 1.595_769;
    let e = simd::exp_f32(-(TWICE_ROOT_TWO_OVER_PI * u * (0.044_715 * u).mul_add(u, 1.0)).abs());
    let larger = 1.0 / (1.0 + e);
    let share = if u < 0.0 { e * larger } else { larger };
    (share, e * larger * larger * TWICE_ROOT_TWO_OVER_PI * (0.134_145 * u).mul_add(u, 1.0))
}

/// A function of one number, and its gradient.
trait Curve {
    fn value(u: f32) -> f32;
    /// Gradient of `u` from that of the value. `saved` is `u`, or the value if
    /// [`Function::saves_output`].
    fn gradient(dy: f32, saved: f32) -> f32;
}

struct Gelu;

impl Curve for Gelu {
    #[inline(always)]
    fn value(u: f32) -> f32 {
        u * phi_integral(u)
    }

    #[inline(always)]
    fn gradient(dy: f32, saved: f32) -> f32 {
        dy * saved.mul_add(phi(saved), phi_integral(saved))
    }
}

struct GeluTanh;

impl Curve for GeluTanh {
    #[inline(always)]
    fn value(u: f32) -> f32 {
        u * tanh_share_and_slope(u).0
    }

    #[inline(always)]
    fn gradient(dy: f32, saved: f32) -> f32 {
        let (share, slope) = tanh_share_and_slope(saved);
        dy * saved.mul_add(slope, share)
    }
}

struct Tanh;

impl Curve for Tanh {
    #[inline(always)]
    fn value(u: f32) -> f32 {
        simd::tanh_f32(u)
    }

    #[inline(always)]
    fn gradient(dy: f32, saved: f32) -> f32 {
        dy * (1.0 - saved * saved)
    }
}

struct Relu;

impl Curve for Relu {
    /// NaN stays NaN: `max` would turn it into 0 and hide that a run diverges.
    #[inline(always)]
    fn value(u: f32) -> f32 {
        if u <= 0.0 { 0.0 } else { u }
    }

    #[inline(always)]
    fn gradient(dy: f32, saved: f32) -> f32 {
        if saved > 0.0 { dy } else { 0.0 }
    }
}

pub(super) fn forward<T: Element>(
    function: Function,
    x_tf: &Tensor,
    bias_f: Option<&Tensor>,
) -> Result<Tensor> {
    let cols = x_tf.dims2()?.1;
    let (x, bias) = (values::<T>(x_tf)?, values_or_zeros(bias_f, cols)?);
    let forward_row = match function {
        Function::Gelu => forward_row::<T, Gelu>,
        Function::GeluTanh => forward_row::<T, GeluTanh>,
        Function::Tanh => forward_row::<T, Tanh>,
        Function::Relu => forward_row::<T, Relu>,
    };
    let mut y = Vec::new();
    parallel::for_rows(unwritten(&mut y, x.len()), cols, |rows, y| {
        for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
            forward_row(&x[row * cols..][..cols], &bias, y);
        }
    });
    // SAFETY: `forward_row` has written every row; rows are as long as the bias.
    unsafe { y.set_len(x.len()) };
    from_vec(y, x_tf.shape())
}

kernel! {
    fn forward_row<T; F: Curve>(x: &[T], bias: &[f32], y: &mut [MaybeUninit<T>]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            y.write(T::narrow(F::value(x.widen() + bias)));
        }
    }
}

pub(super) fn backward<T: Element>(
    function: Function,
    dy_tf: &Tensor,
    saved_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let cols = saved_tf.dims2()?.1;
    let backward_row = match function {
        Function::Gelu => backward_row::<T, Gelu>,
        Function::GeluTanh => backward_row::<T, GeluTanh>,
        Function::Tanh => backward_row::<T, Tanh>,
        Function::Relu => backward_row::<T, Relu>,
    };
    let (dx, sums) = {
        let (dy, saved, bias) = (values::<T>(dy_tf)?, values::<T>(saved_tf)?, values_or_zeros(bias_f, cols)?);
        let mut dx = Vec::new();
        let sums = parallel::sum_rows(unwritten(&mut dx, saved.len()), cols, cols, |rows, dx, dbias| {
            for (row, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
                backward_row(&dy[row * cols..][..cols], &saved[row * cols..][..cols], &bias, dx, &mut *dbias);
            }
        });
        // SAFETY: `backward_row` has written every row; rows are as long as bias and sums.
        unsafe { dx.set_len(saved.len()) };
        (dx, sums)
    };
    if let Some(dbias_f) = dbias_f {
        with_slice_mut(dbias_f.begin()?, |acc| sums.add_to(acc, 0))?;
    }
    from_vec(dx, saved_tf.shape())
}

kernel! {
    fn backward_row<T; F: Curve>(
        dy: &[T],
        saved: &[T],
        bias: &[f32],
        dx: &mut [MaybeUninit<T>],
        dbias: &mut [f32],
    ) {
        for ((((dx, dy), saved), bias), dbias) in dx.iter_mut().zip(dy).zip(saved).zip(bias).zip(dbias) {
            let value = F::gradient(dy.widen(), saved.widen() + bias);
            dx.write(T::narrow(value));
            *dbias += value;
        }
    }
}
