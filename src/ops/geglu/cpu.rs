//! Gated GELU on the CPU, one pass over the rows each way.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::activation::cpu::{phi, phi_integral};
use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values};

pub(super) fn forward<T: Element>(x_t2f: &Tensor) -> Result<Tensor> {
    let (tokens, cols) = (x_t2f.dim(0)?, x_t2f.dim(1)? / 2);
    let x = values::<T>(x_t2f)?;
    let len = tokens * cols;
    let mut y = Vec::new();
    parallel::for_rows(unwritten(&mut y, len), cols, |rows, y| {
        for (row, y) in rows.zip(y.chunks_exact_mut(cols)) {
            let (u, gate) = x[row * 2 * cols..][..2 * cols].split_at(cols);
            forward_row(u, gate, y);
        }
    });
    // SAFETY: `forward_row` has written every row; rows are as long as each half of a row of `x`.
    unsafe { y.set_len(len) };
    from_vec(y, (tokens, cols))
}

kernel! {
    fn forward_row<T>(u: &[T], gate: &[T], y: &mut [MaybeUninit<T>]) {
        for ((y, u), gate) in y.iter_mut().zip(u).zip(gate) {
            let u = u.widen();
            y.write(T::narrow(u * phi_integral(u) * gate.widen()));
        }
    }
}

pub(super) fn backward<T: Element>(dy_tf: &Tensor, x_t2f: &Tensor) -> Result<Tensor> {
    let cols = dy_tf.dims2()?.1;
    let (dy, x) = (values::<T>(dy_tf)?, values::<T>(x_t2f)?);
    let mut dx = Vec::new();
    parallel::for_rows(unwritten(&mut dx, x.len()), 2 * cols, |rows, dx| {
        for (row, dx) in rows.zip(dx.chunks_exact_mut(2 * cols)) {
            let (u, gate) = x[row * 2 * cols..][..2 * cols].split_at(cols);
            let (du, dgate) = dx.split_at_mut(cols);
            backward_row(&dy[row * cols..][..cols], u, gate, du, dgate);
        }
    });
    // SAFETY: `backward_row` has written both halves of every row, each as long as a row of `dy`.
    unsafe { dx.set_len(x.len()) };
    from_vec(dx, x_t2f.shape())
}

kernel! {
    fn backward_row<T>(dy: &[T], u: &[T], gate: &[T], du: &mut [MaybeUninit<T>], dgate: &mut [MaybeUninit<T>]) {
        for ((((du, dgate), dy), u), gate) in du.iter_mut().zip(dgate).zip(dy).zip(u).zip(gate) {
            let dy = dy.widen();
            let u = u.widen();
            let share = phi_integral(u);
            du.write(T::narrow(dy * gate.widen() * u.mul_add(phi(u), share)));
            dgate.write(T::narrow(dy * (u * share)));
        }
    }
}
