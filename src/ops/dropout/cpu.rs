//! Dropout on the CPU: the mask is computed one row at a time, stays in the cache, and is applied at once.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::dropout::Dropout;
use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values};
use base::rng::Stream;

/// Number of counters of the random generator that one block advances together; each decides eight columns.
const COUNTERS: usize = 16;

#[inline(always)]
pub(super) fn keep_columns(dropout: &Dropout, row_key: u64, first: usize, factors: &mut [f32]) {
    let (whole, rest) = factors.as_chunks_mut::<{ 8 * COUNTERS }>();
    let threshold = dropout.threshold();
    let scale = dropout.scale();
    let first = (row_key << 16) + first as u64 / 8;
    let end = first + (whole.len() * COUNTERS) as u64;
    for (index, factors) in whole.iter_mut().enumerate() {
        keep_block(&dropout.stream, first + (index * COUNTERS) as u64, threshold, scale, factors);
    }
    if !rest.is_empty() {
        let mut last = [0.0; 8 * COUNTERS];
        keep_block(&dropout.stream, end, threshold, scale, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[inline(always)]
fn keep_block(stream: &Stream, first: u64, threshold: u32, scale: f32, factors: &mut [f32; 8 * COUNTERS]) {
    let words = stream.words_in_order::<COUNTERS>(first);
    for (factors, word) in factors.as_chunks_mut::<2>().0.iter_mut().zip(words.as_flattened()) {
        factors[0] = if word & 0xffff < threshold { 0.0 } else { scale };
        factors[1] = if word >> 16 < threshold { 0.0 } else { scale };
    }
}

pub(super) fn apply<T: Element>(x_td: &Tensor, row_keys: &[u64], dropout: &Dropout) -> Result<Tensor> {
    let cols = x_td.dims2()?.1;
    let x = values::<T>(x_td)?;
    let mut y = Vec::new();
    parallel::for_rows(unwritten(&mut y, x.len()), cols, |rows, y| {
        let mut room = vec![0.0; cols];
        apply_rows(dropout, &row_keys[rows.clone()], &x[rows.start * cols..rows.end * cols], &mut room, y);
    });
    // SAFETY: `apply_rows` has written every row: there is a key for each, and `room` has the length of a
    // row.
    unsafe { y.set_len(x.len()) };
    from_vec(y, x_td.shape())
}

kernel! {
    /// `y = keep * x` for the rows with these keys; `room` has space for the factors of one row.
    fn apply_rows<T>(dropout: &Dropout, row_keys: &[u64], x: &[T], room: &mut [f32], y: &mut [MaybeUninit<T>]) {
        let cols = room.len();
        for ((y, x), &row_key) in y.chunks_exact_mut(cols).zip(x.chunks_exact(cols)).zip(row_keys) {
            dropout.keep_row(row_key, room);
            for ((y, x), keep) in y.iter_mut().zip(x).zip(&*room) {
                y.write(T::narrow(keep * x.widen()));
            }
        }
    }
}
