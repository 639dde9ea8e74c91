//! Means with their deviations, as text.

use base::scores::NOT_MEASURED;

/// Returns a mean with its standard deviation, such as `81.20 ± 0.35`; the mean alone without a deviation,
/// and words if the mean is NaN (not defined). Values are multiplied by `factor` for display.
pub(super) fn mean_and_deviation(mean: f64, deviation: Option<f64>, factor: f64) -> String {
    match deviation {
        _ if mean.is_nan() => NOT_MEASURED.to_string(),
        Some(deviation) => format!("{} ± {}", digits(mean, factor), digits(deviation, factor)),
        None => digits(mean, factor),
    }
}

/// Two decimals for a percentage (a factor above 1), else four.
fn digits(value: f64, factor: f64) -> String {
    if factor > 1.0 { format!("{:.2}", value * factor) } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_their_reader_knows() {
        assert_eq!(mean_and_deviation(0.812, Some(0.0035), 100.0), "81.20 ± 0.35");
        assert_eq!(mean_and_deviation(0.812, None, 1.0), "0.8120");
        assert_eq!(mean_and_deviation(f64::NAN, Some(f64::NAN), 1.0), NOT_MEASURED);
    }
}
