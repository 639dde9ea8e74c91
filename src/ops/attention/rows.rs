//! The passes over one row of scores, compiled for the widest vectors of the machine.

use crate::ops::dropout::Dropout;
use crate::ops::simd;
use crate::ops::simd::kernel;

kernel! {
    /// Scores to probabilities in place; gives the row's log-sum-exp.
    pub(super) fn softmax(scores: &mut [f32]) -> f32 {
        let max = simd::max(scores);
        for score in scores.iter_mut() {
            *score = simd::exp_f32(*score - max);
        }
        let sum = simd::sum_by(scores.len(), |i| scores[i]);
        let inverse = 1.0 / sum;
        for score in scores {
            *score *= inverse;
        }
        max + sum.ln()
    }

    /// The dropout factors of the row `row_key`.
    pub(super) fn factors(dropout: &Dropout, row_key: u64, factors: &mut [f32]) {
        dropout.keep_row(row_key, factors);
    }

    /// `values *= factors`.
    pub(super) fn multiply(values: &mut [f32], factors: &[f32]) {
        for (value, factor) in values.iter_mut().zip(factors) {
            *value *= factor;
        }
    }

    /// `a . b`.
    pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
        let b = &b[..a.len()];
        simd::sum_by(a.len(), |i| a[i] * b[i])
    }

    /// One row of backward. In: scores and `d_dropped = do v^T`. Out: probabilities and gradients of the scores.
    pub(super) fn backward(scores: &mut [f32], d_dropped: &mut [f32], log_sum_exp: f32, delta: f32) {
        for (score, d) in scores.iter_mut().zip(d_dropped) {
            let probability = simd::exp_f32(*score - log_sum_exp);
            *d = probability * (*d - delta);
            *score = probability;
        }
    }

    /// [`backward`] with dropout: the probabilities come out dropped.
    pub(super) fn backward_dropped(scores: &mut [f32], d_dropped: &mut [f32], factors: &[f32], log_sum_exp: f32, delta: f32) {
        for ((score, d), factor) in scores.iter_mut().zip(d_dropped).zip(factors) {
            let probability = simd::exp_f32(*score - log_sum_exp);
            *d = probability * (*d * factor - delta);
            *score = probability * factor;
        }
    }
}
