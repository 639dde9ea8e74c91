//! Loops over the rows of a matrix, split over the rayon pool in blocks whose size depends only on shapes.
//!
//! Each block makes its own partial sums, and these are added in block order, so a result is bitwise the same
//! for 1, 2 or N threads. This file works on slices; it knows neither tensors nor ops.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::element::Element;
use crate::simd::kernel;
use crate::tensor::{filled, unwritten};

/// Approximate number of values of one task: enough to hide the cost of a task, few enough to fill many
/// cores.
pub const BLOCK_VALUES: usize = 32 * 1024;

/// Number of sums of one task when partial sums are added up.
const SUMS: usize = 256;

/// Number of rows of `cols` values in one block; depends only on `cols`.
pub fn block_rows(cols: usize) -> usize {
    (BLOCK_VALUES / cols.max(1)).clamp(1, 1024)
}

/// Splits `0..rows` into blocks, in order, for rows of `cols` values.
pub fn blocks(rows: usize, cols: usize) -> impl IndexedParallelIterator<Item = Range<usize>> {
    let size = block_rows(cols);
    (0..rows.div_ceil(size)).into_par_iter().map(move |block| block * size..((block + 1) * size).min(rows))
}

/// Calls `f(rows, values of these rows)` for each block of `out`, a matrix with rows of `cols` values, in
/// parallel; returns the results of `f` in block order.
pub fn map_rows<T: Send, P: Send>(
    out: &mut [T],
    cols: usize,
    f: impl Fn(Range<usize>, &mut [T]) -> P + Sync,
) -> Vec<P> {
    let size = block_rows(cols);
    let blocks = out.par_chunks_mut((size * cols).max(1)).enumerate();
    blocks.map(|(block, values)| f(rows_from(block * size, values.len(), cols), values)).collect()
}

/// The range of rows of `cols` values that a slice of `len` values has, beginning with row `first`.
fn rows_from(first: usize, len: usize, cols: usize) -> Range<usize> {
    first..first + len / cols.max(1)
}

/// [`map_rows`] for two matrices of the same shape that are written together.
pub fn map_rows2<T: Send, P: Send>(
    first: &mut [T],
    second: &mut [T],
    cols: usize,
    f: impl Fn(Range<usize>, &mut [T], &mut [T]) -> P + Sync,
) -> Vec<P> {
    assert_eq!(first.len(), second.len(), "two matrices of one shape");
    let size = block_rows(cols);
    let step = (size * cols).max(1);
    let blocks = first.par_chunks_mut(step).zip(second.par_chunks_mut(step)).enumerate();
    blocks
        .map(|(block, (first, second))| f(rows_from(block * size, first.len(), cols), first, second))
        .collect()
}

/// [`map_rows`] for an `f` that returns nothing.
pub fn for_rows<T: Send>(out: &mut [T], cols: usize, f: impl Fn(Range<usize>, &mut [T]) + Sync) {
    map_rows(out, cols, f);
}

/// [`map_rows`] in which each block also adds up `width` partial sums, initially zero: calls
/// `f(rows, values of these rows, sums)`.
pub fn sum_rows<T: Send>(
    out: &mut [T],
    cols: usize,
    width: usize,
    f: impl Fn(Range<usize>, &mut [T], &mut [f32]) + Sync,
) -> PartialSums {
    let step = (block_rows(cols) * cols).max(1);
    let len = width * out.len().div_ceil(step);
    let mut sums = Vec::new();
    let block_sums = unwritten(&mut sums, len).par_chunks_mut(width.max(1));
    let blocks = out.par_chunks_mut(step).zip(block_sums).enumerate();
    blocks.for_each(|(block, (values, sums)): (_, (_, &mut [MaybeUninit<f32>]))| {
        f(rows_from(block * block_rows(cols), values.len(), cols), values, filled(sums, 0.0));
    });
    // SAFETY: each block has `width` sums, and each block has filled its own.
    unsafe { sums.set_len(len) };
    PartialSums { values: sums, width }
}

/// [`sum_rows`] for two matrices of the same shape that are written together.
pub fn sum_rows2<T: Send>(
    first: &mut [T],
    second: &mut [T],
    cols: usize,
    width: usize,
    f: impl Fn(Range<usize>, &mut [T], &mut [T], &mut [f32]) + Sync,
) -> PartialSums {
    assert_eq!(first.len(), second.len(), "two matrices of one shape");
    let step = (block_rows(cols) * cols).max(1);
    let len = width * first.len().div_ceil(step);
    let mut sums = Vec::new();
    let block_sums = unwritten(&mut sums, len).par_chunks_mut(width.max(1));
    let blocks = first.par_chunks_mut(step).zip(second.par_chunks_mut(step));
    blocks.zip(block_sums).enumerate().for_each(|(block, ((first, second), sums))| {
        f(rows_from(block * block_rows(cols), first.len(), cols), first, second, filled(sums, 0.0));
    });
    // SAFETY: as in `sum_rows`.
    unsafe { sums.set_len(len) };
    PartialSums { values: sums, width }
}

/// The partial sums of all blocks, block after block in one vector.
pub struct PartialSums {
    values: Vec<f32>,
    /// Number of sums of one block.
    width: usize,
}

impl PartialSums {
    /// Adds the sums `first..first + acc.len()` of each block to `acc`, block after block.
    pub fn add_to(&self, acc: &mut [f32], first: usize) {
        acc.par_chunks_mut(SUMS).enumerate().for_each(|(chunk, acc)| {
            let columns = first + chunk * SUMS..first + chunk * SUMS + acc.len();
            add_in_order(acc, self.values.chunks_exact(self.width.max(1)).map(|sums| &sums[columns.clone()]));
        });
    }
}

/// Adds the partial sums to `acc`, one vector after the other in the given order.
pub fn add_in_order<'a, T: Element>(acc: &mut [f32], partials: impl IntoIterator<Item = &'a [T]>) {
    for partial in partials {
        add(&mut *acc, partial);
    }
}

kernel! {
    fn add<T>(acc: &mut [f32], values: &[T]) {
        for (a, v) in acc.iter_mut().zip(values) {
            *a += v.widen();
        }
    }
}

/// Adds the sum over the rows of `x`, a matrix with rows of `acc.len()` values, to `acc`.
pub fn column_sums_into<T: Element>(x: &[T], acc: &mut [f32]) {
    let cols = acc.len();
    let partials: Vec<Vec<f32>> = blocks(x.len() / cols.max(1), cols)
        .map(|rows| {
            let mut partial = vec![0.0; cols];
            for row in x[rows.start * cols..rows.end * cols].chunks_exact(cols) {
                add(&mut partial, row);
            }
            partial
        })
        .collect();
    add_in_order(acc, partials.iter().map(Vec::as_slice));
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Purpose, Stream};

    fn values(count: usize) -> Vec<f32> {
        let stream = Stream::new(3, Purpose::Test, 1);
        (0..count).map(|i| stream.normal(i as u64) as f32).collect()
    }

    #[test]
    fn column_sums_accumulate_and_do_not_depend_on_the_thread_count() {
        for (rows, cols) in [(0, 7), (1, 24), (5000, 24), (700, 96), (3, 1)] {
            let x = values(rows * cols);
            let one = column_sums_with(1, &x, cols);
            assert!((2..5).all(|threads| column_sums_with(threads, &x, cols) == one));
            for (c, got) in one.iter().enumerate() {
                let want = 1.0 + (0..rows).map(|r| f64::from(x[r * cols + c])).sum::<f64>();
                assert!((f64::from(*got) - want).abs() < 1e-3, "{rows}x{cols}: {got} is not {want}");
            }
        }
    }

    /// One plus the column sums of `x`, computed with `threads` threads.
    fn column_sums_with(threads: usize, x: &[f32], cols: usize) -> Vec<f32> {
        let mut acc = vec![1.0f32; cols];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| column_sums_into(x, &mut acc));
        acc
    }

    #[test]
    fn sums_made_while_rows_are_written_equal_the_column_sums() {
        for (rows, cols) in [(0, 7), (1, 24), (5000, 24), (700, 300)] {
            let x = values(rows * cols);
            let mut want = vec![1.0f32; cols];
            column_sums_into(&x, &mut want);
            let copy = |rows: Range<usize>, out: &mut [f32], sums: &mut [f32]| {
                out.copy_from_slice(&x[rows.start * cols..rows.end * cols]);
                add_in_order(&mut sums[1..], out.chunks_exact(cols));
            };
            let mut once = vec![0.0; x.len()];
            let mut twice = vec![0.0; x.len()];
            let sums = sum_rows(&mut once, cols, cols + 1, copy);
            let sums2 =
                sum_rows2(&mut once, &mut twice, cols, cols + 1, |rows, _, out, sums| copy(rows, out, sums));
            for (sums, out) in [(sums, once), (sums2, twice)] {
                let mut got = vec![1.0f32; cols];
                sums.add_to(&mut got, 1);
                assert_eq!((got, out), (want.clone(), x.clone()));
            }
        }
    }

    #[test]
    fn blocks_cover_every_row_once() {
        for (rows, cols) in [(0, 8), (1, 8), (5001, 8), (100, 4096)] {
            let covered: Vec<usize> = blocks(rows, cols).flat_map_iter(|block| block).collect();
            assert_eq!(covered, (0..rows).collect::<Vec<_>>());
            let mut out = vec![0.0; rows * cols];
            let counts = map_rows(&mut out, cols, |rows, values| {
                assert_eq!(values.len(), rows.len() * cols);
                for v in values.iter_mut() {
                    *v += 1.0;
                }
                rows.len()
            });
            assert_eq!(counts.iter().sum::<usize>(), rows);
            assert_eq!(out, vec![1.0; rows * cols]);
        }
    }
}
