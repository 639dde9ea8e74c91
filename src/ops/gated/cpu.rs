//! Gated activations on the CPU, one pass over the rows each way.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::activation::cpu::{phi, phi_integral};
use crate::element::Element;
use crate::gated::Function;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values};
use crate::{parallel, simd};

/// A function `u * P(u)` of one number.
trait Curve {
    /// `P(u)` and `P'(u)`.
    fn share_and_slope(u: f32) -> (f32, f32);
}

struct Gelu;

impl Curve for Gelu {
    #[inline(always)]
    fn share_and_slope(u: f32) -> (f32, f32) {
        (phi_integral(u), phi(u))
    }
}

struct Silu;

impl Curve for Silu {
    /// The exponential of a negative number does not overflow, and `1 - P` would lose digits for `P` near 1.
    #[inline(always)]
    fn share_and_slope(u: f32) -> (f32, f32) {
        let e = simd::exp_f32(-u.abs());
        let larger = 1.0 / (1.0 + e);
        (if u < 0.0 { e * larger } else { larger }, e * larger * larger)
    }
}

pub(super) fn forward<T: Element>(function: Function, x_t2f: &Tensor) -> Result<Tensor> {
    let (tokens, cols) = (x_t2f.dim(0)?, x_t2f.dim(1)? / 2);
    let forward_row = match function {
        Function::Gelu => forward_row::<T, Gelu>,
        Function::Silu => forward_row::<T, Silu>,
    };
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
    fn forward_row<T; F: Curve>(u: &[T], gate: &[T], y: &mut [MaybeUninit<T>]) {
        for ((y, u), gate) in y.iter_mut().zip(u).zip(gate) {
            let u = u.widen();
            y.write(T::narrow(u * F::share_and_slope(u).0 * gate.widen()));
        }
    }
}

pub(super) fn backward<T: Element>(function: Function, dy_tf: &Tensor, x_t2f: &Tensor) -> Result<Tensor> {
    let backward_row = match function {
        Function::Gelu => backward_row::<T, Gelu>,
        Function::Silu => backward_row::<T, Silu>,
    };
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
    fn backward_row<T; F: Curve>(
        dy: &[T],
        u: &[T],
        gate: &[T],
        du: &mut [MaybeUninit<T>],
        dgate: &mut [MaybeUninit<T>],
    ) {
        for ((((du, dgate), dy), u), gate) in du.iter_mut().zip(dgate).zip(dy).zip(u).zip(gate) {
            let dy = dy.widen();
            let u = u.widen();
            let (share, slope) = F::share_and_slope(u);
            du.write(T::narrow(dy * gate.widen() * u.mul_add(slope, share)));
            dgate.write(T::narrow(dy * (u * share)));
        }
    }
}
