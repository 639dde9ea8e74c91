//! Confidence interval of a share.

/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % confidence interval of the share of `right` among `of`; from 0 to 1 if `of` is 0.
///
/// E. B. Wilson, Probable inference, the law of succession, and statistical inference (1927).
pub fn wilson_interval(right: u64, of: u64) -> (f64, f64) {
    if of == 0 {
        return (0.0, 1.0);
    }
    let n = of as f64;
    let p = right as f64 / of as f64;
    let z2 = Z * Z;
    let center = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((center - half).max(0.0), (center + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy 1.17.1 (stats.binomtest, proportion_ci with method="wilson").
    #[test]
    fn it_agrees_with_scipy() {
        let (low, high) = wilson_interval(8, 10);
        assert!((low - 0.490_162).abs() < 1e-5 && (high - 0.943_318).abs() < 1e-5, "{low} {high}");
        let (low, high) = wilson_interval(0, 5);
        assert!(low.abs() < 1e-12 && (high - 0.434_482).abs() < 1e-5, "{low} {high}");
        assert_eq!(wilson_interval(0, 0), (0.0, 1.0));
    }
}
