//! Bias and GELU on the CPU, one pass over the rows.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::parallel;
use crate::ops::simd;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::with_slices;

/// The normal distribution function.
#[inline(always)]
fn phi_integral(u: f32) -> f32 {
    0.5 * (1.0 + simd::erf_f32(u * std::f32::consts::FRAC_1_SQRT_2))
}

/// The normal density.
#[inline(always)]
fn phi(u: f32) -> f32 {
    const INVERSE_ROOT_TAU: f32 = 0.398_942_3;
    INVERSE_ROOT_TAU * simd::exp_f32(-0.5 * u * u)
}

pub(super) fn forward(x_tf: &Tensor, bias_f: &Tensor) -> Result<Tensor> {
    let cols = x_tf.dims2()?.1;
    let mut y = vec![0.0; x_tf.elem_count()];
    with_slices([x_tf, bias_f], |[x, bias]| {
        parallel::for_rows(&mut y, cols, |rows, y| {
            for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
                forward_row(&x[row * cols..][..cols], bias, y);
            }
        });
    })?;
    from_vec(y, x_tf.shape())
}

kernel! {
    fn forward_row(x: &[f32], bias: &[f32], y: &mut [f32]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            let u = x + bias;
            *y = u * phi_integral(u);
        }
    }
}

pub(super) fn backward(dy_tf: &Tensor, x_tf: &Tensor, bias_f: &Tensor, dbias_f: &Tensor) -> Result<Tensor> {
    let cols = x_tf.dims2()?.1;
    let mut dx = vec![0.0; x_tf.elem_count()];
    let partials = with_slices([dy_tf, x_tf, bias_f], |[dy, x, bias]| {
        parallel::map_rows(&mut dx, cols, |rows, dx| {
            let mut dbias = vec![0.0; cols];
            for (row, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
                backward_row(&dy[row * cols..][..cols], &x[row * cols..][..cols], bias, dx, dbias.as_mut_slice());
            }
            dbias
        })
    })?;
    with_slice_mut(dbias_f, |acc| parallel::add_in_order(acc, partials.iter().map(Vec::as_slice)))?;
    from_vec(dx, x_tf.shape())
}

kernel! {
    fn backward_row(dy: &[f32], x: &[f32], bias: &[f32], dx: &mut [f32], dbias: &mut [f32]) {
        for ((((dx, dy), x), bias), dbias) in dx.iter_mut().zip(dy).zip(x).zip(bias).zip(dbias) {
            let u = x + bias;
            *dx = dy * u.mul_add(phi(u), phi_integral(u));
            *dbias += *dx;
        }
    }
}
