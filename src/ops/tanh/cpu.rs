//! Bias and hyperbolic tangent on the CPU, one pass over the rows.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::parallel;
use crate::ops::simd;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::with_slices;

pub(super) fn forward(x_bd: &Tensor, bias_d: &Tensor) -> Result<Tensor> {
    let cols = x_bd.dims2()?.1;
    let mut y = vec![0.0; x_bd.elem_count()];
    with_slices([x_bd, bias_d], |[x, bias]| {
        parallel::for_rows(&mut y, cols, |rows, y| {
            for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
                forward_row(&x[row * cols..][..cols], bias, y);
            }
        });
    })?;
    from_vec(y, x_bd.shape())
}

kernel! {
    fn forward_row(x: &[f32], bias: &[f32], y: &mut [f32]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            *y = simd::tanh_f32(x + bias);
        }
    }
}

pub(super) fn backward(dy_bd: &Tensor, y_bd: &Tensor, dbias_d: &Tensor) -> Result<Tensor> {
    let cols = y_bd.dims2()?.1;
    let mut dx = vec![0.0; y_bd.elem_count()];
    let partials = with_slices([dy_bd, y_bd], |[dy, y]| {
        parallel::map_rows(&mut dx, cols, |rows, dx| {
            let mut dbias = vec![0.0; cols];
            for (row, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
                backward_row(&dy[row * cols..][..cols], &y[row * cols..][..cols], dx, dbias.as_mut_slice());
            }
            dbias
        })
    })?;
    with_slice_mut(dbias_d, |acc| parallel::add_in_order(acc, partials.iter().map(Vec::as_slice)))?;
    from_vec(dx, y_bd.shape())
}

kernel! {
    fn backward_row(dy: &[f32], y: &[f32], dx: &mut [f32], dbias: &mut [f32]) {
        for (((dx, dy), y), dbias) in dx.iter_mut().zip(dy).zip(y).zip(dbias) {
            *dx = dy * (1.0 - y * y);
            *dbias += *dx;
        }
    }
}
