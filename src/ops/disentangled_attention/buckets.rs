//! The assignment of token distances to rows of the table of relative positions.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Result, Tensor};

use crate::cuda::Gpu;

/// Number of distances to either side, including 0, in the first table on a GPU.
const LEAST_PLACES: usize = 512;

/// The rows for the distance from a key to a query. Small distances have one row each. With buckets, larger
/// distances share rows, the more the larger they are: the same as `make_log_bucket_position` of
/// `modeling_deberta_v2.py` (transformers 5.23).
#[derive(Debug, Clone)]
pub struct Buckets {
    /// Number of rows for distances to either side: the number of buckets or, without buckets, the largest
    /// distance.
    span: usize,
    /// The distance from which on all distances have the last bucket; `None` if there are no buckets.
    farthest: Option<usize>,
    /// The result of the last call of [`Self::table`].
    kept: Arc<Mutex<Option<Tensor>>>,
}

/// Consecutive rows of the tables, which include all rows that the distances of a batch use. Their number is
/// a multiple of 8, as suits products, unless the tables have fewer rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Buckets {
    /// `position_buckets` buckets to either side for distances up to `farthest`; if it is 0, one row for each
    /// distance.
    pub fn new(position_buckets: usize, farthest: usize) -> Self {
        let (span, farthest) = match position_buckets {
            0 => (farthest, None),
            span => (span, Some(farthest)),
        };
        Self { span, farthest, kept: Arc::default() }
    }

    /// Number of rows of the table (R).
    pub fn rows(&self) -> usize {
        2 * self.span
    }

    /// The row for a query `distance` tokens after the key (before it if negative). It never decreases if the
    /// distance increases.
    pub fn row(&self, distance: isize) -> usize {
        (self.bucket(distance) + self.span as isize).clamp(0, self.rows() as isize - 1) as usize
    }

    fn bucket(&self, distance: isize) -> isize {
        let half = self.span / 2;
        let apart = distance.unsigned_abs();
        let Some(farthest) = self.farthest.filter(|_| apart > half) else { return distance };
        // In f32 and in this order of operations, as in the training of the published models.
        let [log, log_farthest] = [apart, farthest - 1].map(|distance| (distance as f32 / half as f32).ln());
        let beyond = (log / log_farthest * (half - 1) as f32).ceil() as isize;
        distance.signum() * (beyond + half as isize)
    }

    /// The row of each key position relative to its query, from `longest - 1` tokens before the query to
    /// `longest - 1` after it.
    pub(super) fn by_place(&self, longest: usize) -> Vec<u32> {
        let last = longest as isize - 1;
        (-last..=last).map(|place| self.row(-place) as u32).collect()
    }

    /// Returns the row of each distance from `1 - P` to `P - 1`, u32 on the GPU, and `P`, which is at least
    /// `places`. The host makes this table, because logarithms computed on the GPU would differ and give
    /// other rows. It is kept on the GPU of the last call.
    pub(super) fn table(&self, gpu: &Gpu, places: usize) -> Result<(Tensor, usize)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = &*kept {
            let kept_places = table.elem_count().div_ceil(2);
            if table.device().same_device(gpu.device()) && kept_places >= places {
                return Ok((table.clone(), kept_places));
            }
        }
        // Rounded up to a power of two, so that slowly growing lengths do not each need a new table.
        let places = places.next_power_of_two().max(LEAST_PLACES);
        let mut rows = self.by_place(places);
        rows.reverse();
        let table = gpu.upload(&rows)?;
        *kept = Some(table.clone());
        Ok((table, places))
    }

    /// The rows that the distances within `tokens` tokens use, padded for products on a GPU.
    pub(super) fn window(&self, tokens: usize) -> Window {
        let last = tokens.max(1) as isize - 1;
        let count = self.reached(tokens).next_multiple_of(8).min(self.rows());
        Window { first: self.row(-last).min(self.rows() - count), count }
    }

    /// Number of values that a GPU allocates for the position scores of one token and head with the rows that
    /// the distances within `tokens` tokens use. It is padded so that each token begins at a multiple of 16
    /// bytes in every dtype.
    pub fn width(&self, tokens: usize) -> usize {
        self.window(tokens).count.next_multiple_of(8)
    }

    /// Number of rows that the distances within `tokens` tokens use.
    pub fn reached(&self, tokens: usize) -> usize {
        let last = tokens.max(1) as isize - 1;
        self.row(last) - self.row(-last) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `build_relative_position` in transformers 5.23 with 8 buckets for up to 20 positions, plus
    /// 8, limited to the rows of the table.
    #[test]
    fn distances_have_the_rows_of_transformers() {
        let buckets = Buckets::new(8, 20);
        let rows: Vec<usize> = (0..=24).map(|distance| buckets.row(distance)).collect();
        assert_eq!(
            rows,
            [
                8, 9, 10, 11, 12, 13, 13, 14, 14, 14, 14, 14, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
                15
            ]
        );
        let before: Vec<usize> = (1..=6).map(|distance| buckets.row(-distance)).collect();
        assert_eq!(before, [7, 6, 5, 4, 3, 3]);
        assert_eq!((buckets.rows(), buckets.reached(1), buckets.reached(6)), (16, 1, 11));
    }

    /// For the parameters of published models: the sum of the rows for distances from 0 to 512, and some
    /// single rows, as computed by transformers.
    #[test]
    fn the_published_buckets_equal_those_of_transformers() {
        let buckets = Buckets::new(256, 512);
        assert_eq!((0..=512).map(|distance| buckets.row(distance)).sum::<usize>(), 218_880);
        let some = [127, 128, 129, 130, 131, 200, 300, 400, 510, 511].map(|distance| buckets.row(distance));
        assert_eq!(some, [383, 384, 385, 386, 387, 425, 463, 489, 511, 511]);
    }

    /// A window for segments of 128 tokens has 255 rows and one more. For the longest segments it is the
    /// whole table, also if the number of rows is not a multiple of 8.
    #[test]
    fn a_window_includes_all_used_rows_and_is_padded_to_eights() {
        let published = Buckets::new(256, 512);
        for (tokens, first, count) in [(1, 256, 8), (128, 129, 256), (512, 0, 512)] {
            assert_eq!(published.window(tokens), Window { first, count });
        }
        assert_eq!([1, 128, 512].map(|tokens| published.width(tokens)), [8, 256, 512]);
        let small = Buckets::new(0, 3);
        assert_eq!([0, 2, 9].map(|tokens| small.window(tokens)), [Window { first: 0, count: 6 }; 3]);
        assert_eq!(small.width(2), 8);
        let odd = Buckets::new(7, 40);
        for tokens in 1..60 {
            let Window { first, count } = odd.window(tokens);
            assert!(first <= odd.row(1 - tokens as isize) && odd.row(tokens as isize - 1) < first + count);
            assert!(first + count <= 14 && (count % 8 == 0 || count == 14), "{tokens}: {first} {count}");
        }
    }

    #[test]
    fn without_buckets_each_distance_has_a_row_up_to_the_farthest() {
        let buckets = Buckets::new(0, 3);
        let rows: Vec<usize> = (-5..=5).map(|distance| buckets.row(distance)).collect();
        assert_eq!(rows, [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5]);
        assert_eq!(buckets.by_place(3), [5, 4, 3, 2, 1]);
    }

    #[test]
    fn rows_never_decrease_with_the_distance_and_all_are_used() {
        for (count, farthest) in [(256, 512), (6, 40), (32, 64), (4, 9)] {
            let buckets = Buckets::new(count, farthest);
            let rows: Vec<usize> =
                (-(farthest as isize)..=farthest as isize).map(|distance| buckets.row(distance)).collect();
            assert!(rows.is_sorted(), "{count} {farthest}");
            assert_eq!((rows[0], rows[rows.len() - 1]), (0, 2 * count - 1));
        }
    }
}
