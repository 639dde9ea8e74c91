//! Scores of two lists of numbers that depend on their order: correlations for regression tasks, and the area
//! under the ROC curve.
//!
//! An undefined score (fewer than two pairs, or a constant list) is NaN, as in scipy.

use std::cmp::Ordering;

use crate::scores::mean;
use crate::scores::measured::quotient;

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

/// Area under the ROC curve: the share of pairs of a positive and a negative example in which the positive
/// one has the higher score, where equal scores count half. NaN without a positive or without a negative
/// example, and if a score is NaN.
///
/// Computed from the ranks of the positive examples (Mann and Whitney's U), as `roc_auc_score` of
/// scikit-learn does it by trapezoids.
pub(super) fn auroc(scores: &[f64], is_positive: &[bool]) -> f64 {
    assert_eq!(scores.len(), is_positive.len(), "each score has its example");
    if scores.iter().any(|score| score.is_nan()) {
        return f64::NAN;
    }
    let positive = is_positive.iter().filter(|is| **is).count() as f64;
    let negative = scores.len() as f64 - positive;
    let ranks = ranks(scores).into_iter().zip(is_positive).filter(|(_, is)| **is);
    let rank_sum: f64 = ranks.map(|(rank, _)| rank).sum();
    quotient(rank_sum - positive * (positive + 1.0) / 2.0, positive * negative)
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

    // scikit-learn 1.9.1: `roc_auc_score(y, s)`, with equal scores on both sides.
    #[test]
    fn the_area_under_the_curve_agrees_with_scikit_learn() {
        let is_positive = [false, true, true, false, true, false, false, true];
        let scores = [0.25, 0.5, 0.75, 0.5, 0.5, 0.125, 0.625, 0.875];
        assert!((auroc(&scores, &is_positive) - 0.8125).abs() < 1e-12);
        let flipped = scores.map(|score: f64| -score);
        assert!((auroc(&flipped, &is_positive) - (1.0 - 0.8125)).abs() < 1e-12);
        assert!((auroc(&[0.5; 8], &is_positive) - 0.5).abs() < 1e-12, "equal scores tell nothing");
    }

    #[test]
    fn an_undefined_area_is_nan() {
        assert!(auroc(&[0.2, 0.3], &[true, true]).is_nan());
        assert!(auroc(&[0.2, 0.3], &[false, false]).is_nan());
        assert!(auroc(&[], &[]).is_nan());
        assert!(auroc(&[f64::NAN, 0.3], &[true, false]).is_nan());
    }

    #[test]
    fn an_undefined_correlation_is_nan_and_a_perfect_one_is_one() {
        assert!(pearson(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
        assert!(spearman(&[], &[]).is_nan());
        assert!((spearman(&[1.0, 5.0, 9.0], &[2.0, 3.0, 4.0]) - 1.0).abs() < 1e-15);
    }
}
