//! Which row of the table a distance takes.

/// Rows of the table (R): half of them for keys up to their query, the others for keys behind it.
pub const ROWS: usize = 32;

/// Rows of either half, of which the first half is for one distance each.
const HALF: usize = ROWS / 2;

/// The shortest distance of each row of the second half of a half: they grow from 8 by the square root of 2,
/// as `relative_position_bucket` of `modeling_mpnet.py` (transformers 5.23) has it for distances up to 128.
/// `table_row` in `bias.cuh` is the same.
const STARTS: [usize; HALF / 2] = [8, 12, 16, 23, 32, 46, 64, 91];

/// The row for a query that stands `distance` tokens behind the key. Row 16, of keys behind the query at no
/// distance, is never taken.
pub fn row(distance: isize) -> usize {
    let apart = distance.unsigned_abs();
    let of_half = match STARTS.partition_point(|&start| start <= apart) {
        0 => apart,
        begun => HALF / 2 + begun - 1,
    };
    if distance < 0 { HALF + of_half } else { of_half }
}

/// The rows for keys from `longest - 1` tokens before a query to as many behind it.
pub(super) fn by_place(longest: usize) -> Vec<u32> {
    let last = longest as isize - 1;
    (-last..=last).map(|place| row(-place) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula of T5 and MPNet, in the order and the type in which they compute it.
    fn of_formula(distance: isize) -> usize {
        let apart = distance.unsigned_abs();
        let beyond = (apart as f32 / 8.0).ln() / 16f32.ln() * 8.0;
        let of_half = if apart < 8 { apart } else { (8 + beyond as usize).min(15) };
        of_half + if distance < 0 { 16 } else { 0 }
    }

    #[test]
    fn rows_are_those_of_the_formula() {
        for distance in -2000..=2000 {
            assert_eq!(row(distance), of_formula(distance), "{distance}");
        }
        let some = [0, 7, 8, 11, 12, 90, 91, 5000, -1, -8, -91].map(row);
        assert_eq!(some, [0, 7, 8, 8, 9, 14, 15, 15, 17, 24, 31]);
    }

    #[test]
    fn places_go_from_keys_before_to_keys_behind() {
        assert_eq!(by_place(3), [2, 1, 0, 17, 18]);
        assert_eq!(by_place(1), [0]);
    }
}
