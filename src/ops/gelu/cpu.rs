//! Bias and GELU on the CPU, one pass over the rows.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::element::Element;
use crate::gelu::Form;
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

pub(super) fn forward<T: Element>(form: Form, x_tf: &Tensor, bias_f: Option<&Tensor>) -> Result<Tensor> {
    let cols = x_tf.dims2()?.1;
    let (x, bias) = (values::<T>(x_tf)?, values_or_zeros(bias_f, cols)?);
    let forward_row = match form {
        Form::Erf => erf_forward::<T>,
        Form::Tanh => tanh_forward::<T>,
    };
    let mut y = Vec::new();
    parallel::for_rows(unwritten(&mut y, x.len()), cols, |rows, y| {
        for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
            forward_row(&x[row * cols..][..cols], &bias, y);
        }
    });
    // SAFETY: either function has written every row; rows are as long as the bias.
    unsafe { y.set_len(x.len()) };
    from_vec(y, x_tf.shape())
}

kernel! {
    fn erf_forward<T>(x: &[T], bias: &[f32], y: &mut [MaybeUninit<T>]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            let u = x.widen() + bias;
            y.write(T::narrow(u * phi_integral(u)));
        }
    }

    fn tanh_forward<T>(x: &[T], bias: &[f32], y: &mut [MaybeUninit<T>]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            let u = x.widen() + bias;
            y.write(T::narrow(u * tanh_share_and_slope(u).0));
        }
    }
}

pub(super) fn backward<T: Element>(
    form: Form,
    dy_tf: &Tensor,
    x_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let cols = x_tf.dims2()?.1;
    let backward_row = match form {
        Form::Erf => erf_backward::<T>,
        Form::Tanh => tanh_backward::<T>,
    };
    let (dx, sums) = {
        let (dy, x, bias) = (values::<T>(dy_tf)?, values::<T>(x_tf)?, values_or_zeros(bias_f, cols)?);
        let mut dx = Vec::new();
        let sums = parallel::sum_rows(unwritten(&mut dx, x.len()), cols, cols, |rows, dx, dbias| {
            for (row, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
                backward_row(&dy[row * cols..][..cols], &x[row * cols..][..cols], &bias, dx, &mut *dbias);
            }
        });
        // SAFETY: either function has written every row; rows are as long as bias and sums.
        unsafe { dx.set_len(x.len()) };
        (dx, sums)
    };
    if let Some(dbias_f) = dbias_f {
        with_slice_mut(dbias_f.begin()?, |acc| sums.add_to(acc, 0))?;
    }
    from_vec(dx, x_tf.shape())
}

kernel! {
    fn erf_backward<T>(dy: &[T], x: &[T], bias: &[f32], dx: &mut [MaybeUninit<T>], dbias: &mut [f32]) {
        for ((((dx, dy), x), bias), dbias) in dx.iter_mut().zip(dy).zip(x).zip(bias).zip(dbias) {
            let u = x.widen() + bias;
            let value = dy.widen() * u.mul_add(phi(u), phi_integral(u));
            dx.write(T::narrow(value));
            *dbias += value;
        }
    }

    fn tanh_backward<T>(dy: &[T], x: &[T], bias: &[f32], dx: &mut [MaybeUninit<T>], dbias: &mut [f32]) {
        for ((((dx, dy), x), bias), dbias) in dx.iter_mut().zip(dy).zip(x).zip(bias).zip(dbias) {
            let u = x.widen() + bias;
            let (share, slope) = tanh_share_and_slope(u);
            let value = dy.widen() * u.mul_add(slope, share);
            dx.write(T::narrow(value));
            *dbias += value;
        }
    }
}
