//! The mean of each segment on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values};

pub(super) fn forward<T: Element>(x_td: &Tensor, bounds: &[u32]) -> Result<Tensor> {
    let (segments, cols) = (bounds.len() - 1, x_td.dims2()?.1);
    let x = values::<T>(x_td)?;
    let mut y = Vec::<T>::new();
    parallel::for_rows(unwritten(&mut y, segments * cols), cols, |rows, y| {
        let mut sum = vec![0.0; cols];
        for (segment, y) in rows.zip(y.chunks_exact_mut(cols)) {
            let start = bounds[segment] as usize;
            let end = bounds[segment + 1] as usize;
            sum.fill(0.0);
            parallel::add_in_order(&mut sum, x[start * cols..end * cols].chunks_exact(cols));
            divided(&sum, (end - start).max(1) as f32, y);
        }
    });
    // SAFETY: `divided` has written every row.
    unsafe { y.set_len(segments * cols) };
    from_vec(y, (segments, cols))
}

pub(super) fn backward<T: Element>(dy_md: &Tensor, bounds: &[u32], tokens: usize) -> Result<Tensor> {
    let cols = dy_md.dims2()?.1;
    let dy = values::<T>(dy_md)?;
    let mut dx = Vec::<T>::new();
    parallel::for_rows(unwritten(&mut dx, tokens * cols), cols, |rows, dx| {
        for (token, dx) in rows.zip(dx.chunks_exact_mut(cols)) {
            // The last segment that does not begin after the token; empty segments with the same start
            // precede it.
            let segment = bounds.partition_point(|&bound| bound as usize <= token) - 1;
            let count = bounds[segment + 1] - bounds[segment];
            divided(&dy[segment * cols..][..cols], count as f32, dx);
        }
    });
    // SAFETY: `divided` has written every row.
    unsafe { dx.set_len(tokens * cols) };
    from_vec(dx, (tokens, cols))
}

kernel! {
    /// `y = x / by`.
    fn divided<X, T>(x: &[X], by: f32, y: &mut [MaybeUninit<T>]) {
        for (y, x) in y.iter_mut().zip(x) {
            y.write(T::narrow(x.widen() / by));
        }
    }
}
