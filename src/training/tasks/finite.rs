//! Model outputs that are not finite are an error, never an answer.

use base::error::Problem;

/// Returns an error if a row of outputs has NaN or an infinite value; `place` names the text of a row.
pub fn require_finite<R: AsRef<[f32]>>(rows: &[R], place: impl Fn(usize) -> String) -> Result<(), Problem> {
    match rows.iter().position(|row| !row.as_ref().iter().all(|value| value.is_finite())) {
        Some(row) => Err(not_finite(place(row))),
        None => Ok(()),
    }
}

/// The error for outputs that are not finite, for the text at `place`.
pub(in crate::tasks) fn not_finite(place: impl Into<String>) -> Problem {
    Problem::new("the outputs of the model are not finite here, so there is no answer")
        .at(place.into())
        .hint("its training diverged, or the file is damaged (`mlmtrain checkpoint verify`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_with_a_value_that_is_no_number_is_named() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let rows = [vec![0.0, 1e38], vec![1.0, value], vec![value, 0.0]];
            let message = require_finite(&rows, place).unwrap_err().to_string();
            assert!(message.starts_with("texts.csv:3: the outputs of the model are not finite"), "{message}");
            assert!(require_finite(&rows[..1], place).is_ok());
        }
    }

    fn place(row: usize) -> String {
        format!("texts.csv:{}", row + 2)
    }
}
