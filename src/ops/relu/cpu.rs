//! Bias and rectified linear unit on the CPU, one pass over the rows.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values, values_or_zeros, with_slice_mut};

pub(super) fn forward<T: Element>(x_bd: &Tensor, bias_d: Option<&Tensor>) -> Result<Tensor> {
    let cols = x_bd.dims2()?.1;
    let (x, bias) = (values::<T>(x_bd)?, values_or_zeros(bias_d, cols)?);
    let mut y = Vec::new();
    parallel::for_rows(unwritten(&mut y, x.len()), cols, |rows, y| {
        for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
            forward_row(&x[row * cols..][..cols], &bias, y);
        }
    });
    // SAFETY: `forward_row` has written every row; rows are as long as the bias.
    unsafe { y.set_len(x.len()) };
    from_vec(y, x_bd.shape())
}

kernel! {
    fn forward_row<T>(x: &[T], bias: &[f32], y: &mut [MaybeUninit<T>]) {
        for ((y, x), bias) in y.iter_mut().zip(x).zip(bias) {
            let u = x.widen() + bias;
            // NaN stays NaN: `max` would turn it into 0 and hide that a run diverges.
            y.write(T::narrow(if u <= 0.0 { 0.0 } else { u }));
        }
    }
}

pub(super) fn backward<T: Element>(
    dy_bd: &Tensor,
    y_bd: &Tensor,
    dbias_d: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    let cols = y_bd.dims2()?.1;
    let (dx, sums) = {
        let (dy, y) = (values::<T>(dy_bd)?, values::<T>(y_bd)?);
        let mut dx = Vec::new();
        let sums = parallel::sum_rows(unwritten(&mut dx, y.len()), cols, cols, |rows, dx, dbias| {
            for (row, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
                backward_row(&dy[row * cols..][..cols], &y[row * cols..][..cols], dx, &mut *dbias);
            }
        });
        // SAFETY: `backward_row` has written every row; rows are as long as the sums.
        unsafe { dx.set_len(y.len()) };
        (dx, sums)
    };
    if let Some(dbias_d) = dbias_d {
        with_slice_mut(dbias_d.begin()?, |acc| sums.add_to(acc, 0))?;
    }
    from_vec(dx, y_bd.shape())
}

kernel! {
    fn backward_row<T>(dy: &[T], y: &[T], dx: &mut [MaybeUninit<T>], dbias: &mut [f32]) {
        for (((dx, dy), y), dbias) in dx.iter_mut().zip(dy).zip(y).zip(dbias) {
            let value = if y.widen() > 0.0 { dy.widen() } else { 0.0 };
            dx.write(T::narrow(value));
            *dbias += value;
        }
    }
}
