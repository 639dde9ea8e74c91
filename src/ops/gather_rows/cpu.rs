//! Gathering rows, and its transpose, adding rows to the rows of a table, on the CPU.

use std::ops::Range;

use candle_core::Result;
use candle_core::Tensor;
use rayon::prelude::*;

use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::filled;
use crate::tensor::from_vec;
use crate::tensor::unwritten;
use crate::tensor::values;
use crate::tensor::with_values_mut;

/// A table with at most this many rows is summed by blocks of the input: sharing out its rows would occupy
/// few threads.
const FEW_ROWS: usize = 8;

pub(super) fn forward<T: Element>(x_td: &Tensor, positions: &[u32]) -> Result<Tensor> {
    let cols = x_td.dims2()?.1;
    let x = values::<T>(x_td)?;
    let mut y = Vec::new();
    parallel::for_rows(unwritten(&mut y, positions.len() * cols), cols, |rows, y| {
        for (position, y) in positions[rows].iter().zip(y.chunks_exact_mut(cols)) {
            for (y, x) in y.iter_mut().zip(&x[*position as usize * cols..][..cols]) {
                y.write(*x);
            }
        }
    });
    // SAFETY: every row was written with a whole row of `x`.
    unsafe { y.set_len(positions.len() * cols) };
    from_vec(y, (positions.len(), cols))
}

/// The rows of the result are shared out, so each is written once; those of one position add up in their
/// order.
pub(super) fn backward<T: Element>(dy_md: &Tensor, positions: &[u32], tokens: usize) -> Result<Tensor> {
    let cols = dy_md.dims2()?.1;
    let dy = values::<T>(dy_md)?;
    let order = by_id(positions, None);
    let position = |i: &u32| positions[*i as usize] as usize;
    let mut dx = Vec::new();
    parallel::for_rows(unwritten(&mut dx, tokens * cols), cols, |rows, dx| {
        let mut sum = vec![0.0; cols];
        let dx = filled(dx, T::narrow(0.0));
        let picked = &order[order.partition_point(|i| position(i) < rows.start)..];
        let picked = &picked[..picked.partition_point(|i| position(i) < rows.end)];
        for group in picked.chunk_by(|a, b| position(a) == position(b)) {
            sum.fill(0.0);
            parallel::add_in_order(&mut sum, group.iter().map(|&i| &dy[i as usize * cols..][..cols]));
            narrow(&sum, &mut dx[(position(&group[0]) - rows.start) * cols..][..cols]);
        }
    });
    // SAFETY: every block was filled.
    unsafe { dx.set_len(tokens * cols) };
    from_vec(dx, (tokens, cols))
}

/// Few rows are picked: one thread adds them up, each with those of its position in their order.
pub(super) fn backward_onto<T: Element>(dy_md: &Tensor, positions: &[u32], dx_td: &Tensor) -> Result<()> {
    let cols = dy_md.dims2()?.1;
    let dy = values::<T>(dy_md)?;
    let order = by_id(positions, None);
    with_values_mut::<T, _>(dx_td, |dx| {
        for group in order.chunk_by(|&a, &b| positions[a as usize] == positions[b as usize]) {
            let row = &mut dx[positions[group[0] as usize] as usize * cols..][..cols];
            let mut sum: Vec<f32> = row.iter().map(|value| value.widen()).collect();
            parallel::add_in_order(&mut sum, group.iter().map(|&i| &dy[i as usize * cols..][..cols]));
            narrow(&sum, row);
        }
    })
}

kernel! {
    fn narrow<T>(sum: &[f32], dx: &mut [T]) {
        for (dx, sum) in dx.iter_mut().zip(sum) {
            *dx = T::narrow(*sum);
        }
    }
}

/// The numbers of the ids other than `skip`: by id, and in the order of the input where ids are equal.
fn by_id(ids: &[u32], skip: Option<u32>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ids.len() as u32).filter(|&i| Some(ids[i as usize]) != skip).collect();
    order.sort_by_key(|&i| ids[i as usize]);
    order
}

/// Adds row `i` of `source` to row `ids[i]` of `table`, both with rows of `cols` values, for all `i` with
/// `ids[i]` other than `skip`. Every row of the table adds up in an order that depends on the ids alone.
pub(crate) fn add_rows<T: Element>(
    source: &[T],
    ids: &[u32],
    skip: Option<u32>,
    table: &mut [f32],
    cols: usize,
) {
    if cols == 0 {
        return;
    }
    if table.len() <= FEW_ROWS * cols {
        add_rows_by_blocks(source, ids, skip, table, cols);
        return;
    }
    // Rows with one id stand together, in the order of the input: each group is the business of one thread.
    let order = by_id(ids, skip);
    let mut work = Vec::new();
    let (mut rest, mut next_id) = (table, 0);
    for group in order.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]) {
        let id = ids[group[0] as usize] as usize;
        let (row, after) = rest.split_at_mut((id - next_id) * cols).1.split_at_mut(cols);
        (rest, next_id) = (after, id + 1);
        work.push((row, group));
    }
    work.par_iter_mut().with_min_len(parallel::block_rows(cols) / 4 + 1).for_each(|(row, group)| {
        parallel::add_in_order(row, group.iter().map(|&i| &source[i as usize * cols..][..cols]));
    });
}

fn add_rows_by_blocks<T: Element>(
    source: &[T],
    ids: &[u32],
    skip: Option<u32>,
    table: &mut [f32],
    cols: usize,
) {
    let len = table.len();
    let sum_block = |rows: Range<usize>| {
        let mut partial = vec![0.0; len];
        for row in rows.filter(|&row| Some(ids[row]) != skip) {
            let into = &mut partial[ids[row] as usize * cols..][..cols];
            parallel::add_in_order(into, [&source[row * cols..][..cols]]);
        }
        partial
    };
    let partials: Vec<Vec<f32>> = parallel::blocks(ids.len(), cols).map(sum_block).collect();
    parallel::add_in_order(table, partials.iter().map(Vec::as_slice));
}
