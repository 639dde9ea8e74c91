//! Gathering of rows on the CPU, and its transpose, which adds rows to the rows of a table.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{filled, from_vec, unwritten, values, with_values_mut};

/// For a table of at most this many rows, the input rows are split over the threads. For a larger table, the
/// table's rows are split, which would occupy few threads if there are few rows.
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
    // SAFETY: every row was written, with a row of `x` of the same length.
    unsafe { y.set_len(positions.len() * cols) };
    from_vec(y, (positions.len(), cols))
}

/// Computes `dx`. The rows of the result are split over the threads, so each is written once; the gradients
/// of one position are added in their order.
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

/// Adds to `dx_td` on one thread, because few rows are gathered; the gradients of one position are added in
/// their order.
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

/// The indices of all ids except `skip`, sorted by id; indices of equal ids ascend.
fn by_id(ids: &[u32], skip: Option<u32>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ids.len() as u32).filter(|&i| Some(ids[i as usize]) != skip).collect();
    order.sort_by_key(|&i| ids[i as usize]);
    order
}

/// Adds row `i` of `source` to row `ids[i]` of `table`, for all `i` with `ids[i]` other than `skip`. Both
/// have rows of `cols` values. The order of additions to a row of the table depends only on the ids.
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
    // Source rows with equal ids are adjacent in `order`; one thread adds all rows of such a group.
    let order = by_id(ids, skip);
    let mut work = Vec::new();
    let mut rest = table;
    let mut next_id = 0;
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

/// [`add_rows`] for a table of few rows: each block of source rows makes a partial sum of the whole table,
/// and the partial sums are added in block order.
fn add_rows_by_blocks<T: Element>(
    source: &[T],
    ids: &[u32],
    skip: Option<u32>,
    table: &mut [f32],
    cols: usize,
) {
    let len = table.len();
    let partials = parallel::blocks(ids.len(), cols).map(|rows| {
        let mut partial = vec![0.0; len];
        for row in rows.filter(|&row| Some(ids[row]) != skip) {
            let into = &mut partial[ids[row] as usize * cols..][..cols];
            parallel::add_in_order(into, [&source[row * cols..][..cols]]);
        }
        partial
    });
    let partials: Vec<Vec<f32>> = partials.collect();
    parallel::add_in_order(table, partials.iter().map(Vec::as_slice));
}
