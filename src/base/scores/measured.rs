//! Scores that may not have been measured: NaN among numbers, null in JSON, words for people.
//!
//! The mean of no values, the correlation of equal values and a loss without a target are not 0.

/// Text in place of the number.
pub const NOT_MEASURED: &str = "not measured";

/// A score as text, formatted by `show`; [`NOT_MEASURED`] for NaN.
pub fn measured(value: f64, show: impl FnOnce(f64) -> String) -> String {
    if value.is_nan() { NOT_MEASURED.to_string() } else { show(value) }
}

/// Quotient of two counts or sums; NaN if the denominator is 0.
pub(super) fn quotient(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { f64::NAN } else { numerator / denominator }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_that_were_not_measured_are_shown_in_words() {
        let texts = [0.0, -1.0, f64::INFINITY, f64::NAN].map(|value| measured(value, |v| format!("{v:.2}")));
        assert_eq!(texts, ["0.00", "-1.00", "inf", NOT_MEASURED]);
        assert!(quotient(0.0, 0.0).is_nan());
    }
}
