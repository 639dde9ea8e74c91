//! The assignment of token distances to rows of the bias table.

/// Number of rows of the table (R). The first half is for keys at or before the query, the second for keys
/// after it.
pub const ROWS: usize = 32;

/// Number of rows of either half. Each row of its first half is for one distance; those of its second half
/// are for several.
const HALF: usize = ROWS / 2;

/// The shortest distance of each row that is for several distances. From 8 on they grow by a factor of the
/// square root of 2, as in `relative_position_bucket` of `modeling_mpnet.py` (transformers 5.23), for
/// distances up to 128. The same as in `table_row` in `bias.cuh`.
const STARTS: [usize; HALF / 2] = [8, 12, 16, 23, 32, 46, 64, 91];

/// The row for a query `distance` tokens after the key (before it if negative). Row 16, for keys after the
/// query at distance 0, is never used.
pub fn row(distance: isize) -> usize {
    let apart = distance.unsigned_abs();
    let of_half = match STARTS.partition_point(|&start| start <= apart) {
        0 => apart,
        begun => HALF / 2 + begun - 1,
    };
    if distance < 0 { HALF + of_half } else { of_half }
}

/// The row of each key position relative to its query, from `longest - 1` tokens before the query to
/// `longest - 1` after it.
pub(super) fn by_place(longest: usize) -> Vec<u32> {
    let last = longest as isize - 1;
    (-last..=last).map(|place| row(-place) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula of T5 and MPNet, with the same order of operations and the same type.
    fn row_by_formula(distance: isize) -> usize {
        let apart = distance.unsigned_abs();
        let beyond = (apart as f32 / 8.0).ln() / 16f32.ln() * 8.0;
        let of_half = if apart < 8 { apart } else { (8 + beyond as usize).min(15) };
        of_half + if distance < 0 { 16 } else { 0 }
    }

    #[test]
    fn rows_agree_with_the_formula() {
        for distance in -2000..=2000 {
            assert_eq!(row(distance), row_by_formula(distance), "{distance}");
        }
        let some = [0, 7, 8, 11, 12, 90, 91, 5000, -1, -8, -91].map(row);
        assert_eq!(some, [0, 7, 8, 8, 9, 14, 15, 15, 17, 24, 31]);
    }

    #[test]
    fn key_positions_are_ordered_from_before_to_after_the_query() {
        assert_eq!(by_place(3), [2, 1, 0, 17, 18]);
        assert_eq!(by_place(1), [0]);
    }
}
