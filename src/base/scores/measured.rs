//! Scores that may not have been measured: NaN among numbers, null in JSON, words for people.
//!
//! The mean of nothing, a correlation of equal values, a loss without a target: none of them is 0.

/// The words in place of a number.
pub const NOT_MEASURED: &str = "not measured";

/// A score as text, by `show`; [`NOT_MEASURED`] for NaN.
pub fn measured(value: f64, show: impl FnOnce(f64) -> String) -> String {
    if value.is_nan() { NOT_MEASURED.to_string() } else { show(value) }
}

/// The quotient of two counts or sums; NaN where there is nothing to divide by.
pub(super) fn quotient(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { f64::NAN } else { numerator / denominator }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_said_in_words() {
        let show = |value: f64| measured(value, |value| format!("{value:.2}"));
        assert_eq!([0.0, -1.0, f64::INFINITY, f64::NAN].map(show), ["0.00", "-1.00", "inf", NOT_MEASURED]);
        assert!(quotient(0.0, 0.0).is_nan());
    }
}
