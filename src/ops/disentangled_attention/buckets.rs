//! Which row of the table of relative positions a distance takes.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use candle_core::Result;
use candle_core::Tensor;

use crate::cuda::Gpu;

/// Distances that the first table of a GPU is for, to either side and with 0.
const LEAST_PLACES: usize = 512;

/// The rows for distances of a query behind a key: one each near 0, and where there are buckets, the farther
/// the more distances share a row. `make_log_bucket_position` of `modeling_deberta_v2.py` (transformers
/// 5.23).
#[derive(Debug, Clone)]
pub struct Buckets {
    /// Rows for distances to either side: the buckets, or the farthest distance where there are none.
    span: usize,
    /// The distance from which on all take the last bucket; `None` where each distance has a row.
    farthest: Option<usize>,
    /// [`Self::table`] of the last call.
    kept: Arc<Mutex<Option<Tensor>>>,
}

/// Consecutive rows of the tables that the distances of a batch reach, and with them what products like: a
/// multiple of 8 rows, where the tables have as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Buckets {
    /// So many buckets to either side for distances up to `farthest`; 0 for a row for each distance.
    pub fn new(position_buckets: usize, farthest: usize) -> Self {
        let (span, farthest) = match position_buckets {
            0 => (farthest, None),
            span => (span, Some(farthest)),
        };
        Self { span, farthest, kept: Arc::default() }
    }

    /// Rows of the table (R).
    pub fn rows(&self) -> usize {
        2 * self.span
    }

    /// The row for a query that stands `distance` tokens behind the key. It never falls as the distance
    /// grows.
    pub fn row(&self, distance: isize) -> usize {
        (self.bucket(distance) + self.span as isize).clamp(0, self.rows() as isize - 1) as usize
    }

    fn bucket(&self, distance: isize) -> isize {
        let (half, apart) = (self.span / 2, distance.unsigned_abs());
        let Some(farthest) = self.farthest.filter(|_| apart > half) else { return distance };
        // In f32 and in this order, as the published models were trained.
        let of = |distance: usize| (distance as f32 / half as f32).ln();
        let beyond = (of(apart) / of(farthest - 1) * (half - 1) as f32).ceil() as isize;
        distance.signum() * (beyond + half as isize)
    }

    /// The rows for keys from `longest - 1` tokens before a query to as many behind it.
    pub(super) fn by_place(&self, longest: usize) -> Vec<u32> {
        let last = longest as isize - 1;
        (-last..=last).map(|place| self.row(-place) as u32).collect()
    }

    /// The row of each distance from `1 - P` to `P - 1` on a GPU, u32, and `P`, at least `places`. It is
    /// kept, on the GPU of the last call: made of logarithms there, some rows would be others.
    pub(super) fn table(&self, gpu: &Gpu, places: usize) -> Result<(Tensor, usize)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let places_of = |table: &Tensor| table.elem_count().div_ceil(2);
        let is_enough =
            |table: &&Tensor| table.device().same_device(gpu.device()) && places_of(table) >= places;
        if let Some(table) = kept.as_ref().filter(is_enough) {
            return Ok((table.clone(), places_of(table)));
        }
        // Powers of two: lengths that grow little by little do not make a table each.
        let places = places.next_power_of_two().max(LEAST_PLACES);
        let mut rows = self.by_place(places);
        rows.reverse();
        let table = gpu.upload(&rows)?;
        *kept = Some(table.clone());
        Ok((table, places))
    }

    /// The rows that the distances within `tokens` tokens reach, as products on a GPU take them.
    pub(super) fn window(&self, tokens: usize) -> Window {
        let (count, last) = (self.reached(tokens), tokens.max(1) as isize - 1);
        let count = count.next_multiple_of(8).min(self.rows());
        Window { first: self.row(-last).min(self.rows() - count), count }
    }

    /// The values in which a GPU keeps what a token says of the rows that the distances within `tokens`
    /// tokens reach, for each head: they begin at multiples of 16 bytes in every type.
    pub fn width(&self, tokens: usize) -> usize {
        self.window(tokens).count.next_multiple_of(8)
    }

    /// The rows that the distances within `tokens` tokens reach.
    pub fn reached(&self, tokens: usize) -> usize {
        let last = tokens.max(1) as isize - 1;
        self.row(last) - self.row(-last) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `build_relative_position` of transformers 5.23 with 8 buckets for up to 20 positions, 8 added and
    /// cut off to rows of the table.
    #[test]
    fn distances_take_the_rows_of_transformers() {
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

    /// The sum of the rows for 0 to 512 tokens, and some of them, as transformers has them for published
    /// models.
    #[test]
    fn the_published_buckets_are_those_of_transformers() {
        let buckets = Buckets::new(256, 512);
        assert_eq!((0..=512).map(|distance| buckets.row(distance)).sum::<usize>(), 218_880);
        let some = [127, 128, 129, 130, 131, 200, 300, 400, 510, 511].map(|distance| buckets.row(distance));
        assert_eq!(some, [383, 384, 385, 386, 387, 425, 463, 489, 511, 511]);
    }

    /// Of segments of 128 tokens: 255 rows and one more. Of the longest the whole table, also where that is
    /// no multiple of 8.
    #[test]
    fn a_window_holds_the_rows_that_are_reached_in_eights() {
        let window = |buckets: &Buckets, tokens| {
            let Window { first, count } = buckets.window(tokens);
            (first, count)
        };
        let published = Buckets::new(256, 512);
        assert_eq!([1, 128, 512].map(|tokens| window(&published, tokens)), [(256, 8), (129, 256), (0, 512)]);
        assert_eq!([1, 128, 512].map(|tokens| published.width(tokens)), [8, 256, 512]);
        let small = Buckets::new(0, 3);
        assert_eq!([0, 2, 9].map(|tokens| window(&small, tokens)), [(0, 6); 3]);
        assert_eq!(small.width(2), 8);
        let odd = Buckets::new(7, 40);
        for tokens in 1..60 {
            let (first, count) = window(&odd, tokens);
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
    fn rows_never_fall_as_the_distance_grows_and_all_are_used() {
        for (count, farthest) in [(256, 512), (6, 40), (32, 64), (4, 9)] {
            let buckets = Buckets::new(count, farthest);
            let rows: Vec<usize> =
                (-(farthest as isize)..=farthest as isize).map(|distance| buckets.row(distance)).collect();
            assert!(rows.is_sorted(), "{count} {farthest}");
            assert_eq!((rows[0], rows[rows.len() - 1]), (0, 2 * count - 1));
        }
    }
}
