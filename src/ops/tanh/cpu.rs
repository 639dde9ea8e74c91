//! Bias and hyperbolic tangent on the CPU, one pass over the rows.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::element::Element;
use crate::ops::parallel;
use crate::ops::simd;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::values;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::written;

pub(super) fn forward<T: Element>(x_bd: &Tensor, bias_d: &Tensor) -> Result<Tensor> {
    let cols = x_bd.dims2()?.1;
    let (x, bias) = (values::<T>(x_bd)?, values::<f32>(bias_d)?);
    let (y, ()) = written::<T, _>(x.len(), |y| {
        parallel::for_rows(y, cols, |rows, y| {
            for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
                forward_row(&x[row * cols..][..cols], &bias, y);
            }
        });
    });
    from_vec(y, x_bd.shape())
}

kernel! {
    fn forward_row<T>(x: &[T], bias: &[f32], y: &mut [T]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            *y = T::narrow(simd::tanh_f32(x.widen() + bias));
        }
    }
}

pub(super) fn backward<T: Element>(dy_bd: &Tensor, y_bd: &Tensor, dbias_d: &Tensor) -> Result<Tensor> {
    let cols = y_bd.dims2()?.1;
    let (dx, sums) = {
        let (dy, y) = (values::<T>(dy_bd)?, values::<T>(y_bd)?);
        written::<T, _>(y.len(), |dx| {
            parallel::sum_rows(dx, cols, cols, |rows, dx, dbias| {
                for (row, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
                    backward_row(&dy[row * cols..][..cols], &y[row * cols..][..cols], dx, &mut *dbias);
                }
            })
        })
    };
    with_slice_mut(dbias_d, |acc| sums.add_to(acc, 0))?;
    from_vec(dx, y_bd.shape())
}

kernel! {
    fn backward_row<T>(dy: &[T], y: &[T], dx: &mut [T], dbias: &mut [f32]) {
        for (((dx, dy), y), dbias) in dx.iter_mut().zip(dy).zip(y).zip(dbias) {
            let y = y.widen();
            let value = dy.widen() * (1.0 - y * y);
            *dx = T::narrow(value);
            *dbias += value;
        }
    }
}
