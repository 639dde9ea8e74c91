//! Product of a sparse matrix with a dense one, on the CPU.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::simd::kernel;

/// A sparse matrix that stores its entries by rows.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a> {
    /// Start of each row in `columns` and `values`, then the end of the last row.
    pub starts: &'a [usize],
    /// Column of each entry.
    pub columns: &'a [u32],
    /// Value of each entry.
    pub values: &'a [f32],
}

/// Returns `sparse * dense`, row-major, for a row-major `dense` with `width` columns. The entries of a row are
/// added in their order.
pub fn multiply(sparse: SparseRows<'_>, dense: &[f32], width: usize) -> Vec<f32> {
    let mut product = vec![0.0; (sparse.starts.len() - 1) * width];
    product.par_chunks_exact_mut(width).enumerate().for_each(|(row, out)| {
        let entries = sparse.starts[row]..sparse.starts[row + 1];
        add_scaled_rows(&sparse.columns[entries.clone()], &sparse.values[entries], dense, out);
    });
    product
}

kernel! {
    /// Adds the rows `columns` of `dense`, each times its value, to `out`.
    fn add_scaled_rows(columns: &[u32], values: &[f32], dense: &[f32], out: &mut [f32]) {
        let width = out.len();
        for (column, value) in columns.iter().zip(values) {
            let row = &dense[*column as usize * width..][..width];
            for (out, from) in out.iter_mut().zip(row) {
                *out += value * from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use base::rng::{Purpose, Stream};

    fn drawn(stream: Stream, indices: Range<usize>) -> Vec<f32> {
        indices.map(|index| stream.normal(index as u64) as f32).collect()
    }

    #[test]
    fn the_product_is_that_of_the_dense_matrix_to_the_bit() {
        let stream = Stream::new(3, Purpose::Test, 0);
        for (rows, inner, width) in [(1, 1, 1), (5, 7, 3), (40, 33, 17), (9, 64, 128)] {
            let mut sparse = drawn(stream, 0..rows * inner);
            // Half of the entries are not stored, and one row has none.
            sparse.iter_mut().filter(|value| **value < 0.0).for_each(|value| *value = 0.0);
            sparse[(rows - 1) * inner..].fill(0.0);
            let dense = drawn(stream, rows * inner..(rows + width) * inner);
            let mut starts = vec![0];
            let mut columns = Vec::new();
            let mut values = Vec::new();
            let mut expected = vec![0.0f32; rows * width];
            for (row, expected) in sparse.chunks_exact(inner).zip(expected.chunks_exact_mut(width)) {
                for (column, value) in row.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                    columns.push(column as u32);
                    values.push(*value);
                    let from = &dense[column * width..][..width];
                    expected.iter_mut().zip(from).for_each(|(sum, from)| *sum += value * from);
                }
                starts.push(columns.len());
            }
            let rows = SparseRows { starts: &starts, columns: &columns, values: &values };
            assert_eq!(multiply(rows, &dense, width), expected);
        }
    }
}
