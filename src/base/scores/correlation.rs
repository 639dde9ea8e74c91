//! Correlation of two lists of numbers, for regression tasks.
//!
//! An undefined correlation (fewer than two pairs, or a constant list) is NaN, as in scipy.

use std::cmp::Ordering;

use crate::scores::mean;

/// Pearson's correlation coefficient of two equally long lists.
pub fn pearson(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len(), "a correlation wants pairs");
    let left_mean = mean(left);
    let right_mean = mean(right);
    let mut covariance = 0.0;
    let mut left_square = 0.0;
    let mut right_square = 0.0;
    for (l, r) in left.iter().zip(right) {
        let l = l - left_mean;
        let r = r - right_mean;
        covariance += l * r;
        left_square += l * l;
        right_square += r * r;
    }
    // Rounding may push a perfect correlation past 1.
    (covariance / (left_square.sqrt() * right_square.sqrt())).clamp(-1.0, 1.0)
}

/// Spearman's rank correlation of two equally long lists: Pearson's correlation of their ranks. Equal values
/// share the mean of their ranks.
pub fn spearman(left: &[f64], right: &[f64]) -> f64 {
    pearson(&ranks(left), &ranks(right))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for group in order.chunk_by(|&a, &b| values[a].partial_cmp(&values[b]) == Some(Ordering::Equal)) {
        for &index in group {
            ranks[index] = before as f64 + (group.len() + 1) as f64 / 2.0;
        }
        before += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy 1.17.1: stats.pearsonr, stats.spearmanr.
    #[test]
    fn correlations_agree_with_scipy() {
        let left = [0.1, 2.5, 3.3, 3.3, 4.8, 1.0, -2.0];
        let right = [1.0, 2.0, 2.0, 4.5, 4.0, 0.5, 0.25];
        assert!((pearson(&left, &right) - 0.838_767_982_985_158_2).abs() < 1e-12);
        assert!((spearman(&left, &right) - 0.881_818_181_818_181_8).abs() < 1e-12);
    }

    #[test]
    fn an_undefined_correlation_is_nan_and_a_perfect_one_is_one() {
        assert!(pearson(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
        assert!(spearman(&[], &[]).is_nan());
        assert!((spearman(&[1.0, 5.0, 9.0], &[2.0, 3.0, 4.0]) - 1.0).abs() < 1e-15);
    }
}
