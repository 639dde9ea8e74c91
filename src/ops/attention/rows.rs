//! The passes over one row of scores, compiled for the widest vectors of the machine.

use crate::ops::dropout::Dropout;
use crate::ops::simd;
use crate::ops::simd::kernel;

kernel! {
    /// One row of forward: scores to probabilities, dropped where `keep` says so; gives the row's log-sum-exp.
    pub(super) fn softmax<T>(scores: &mut [f32], keep: Option<(&Dropout, u64)>, factors: &mut [f32], probabilities: &mut [T]) -> f32 {
        let len = probabilities.len();
        let (scores, factors) = (&mut scores[..len], &mut factors[..len]);
        let max = simd::max(scores);
        for score in scores.iter_mut() {
            *score = simd::exp_f32(*score - max);
        }
        let sum = simd::sum_by(len, |i| scores[i]);
        let inverse = 1.0 / sum;
        if let Some((dropout, row_key)) = keep {
            dropout.keep_row(row_key, factors);
            for i in 0..len {
                probabilities[i] = T::narrow(scores[i] * inverse * factors[i]);
            }
        } else {
            for i in 0..len {
                probabilities[i] = T::narrow(scores[i] * inverse);
            }
        }
        max + sum.ln()
    }

    /// `a . b`.
    pub(super) fn dot<T>(a: &[T], b: &[T]) -> f32 {
        let b = &b[..a.len()];
        simd::sum_by(a.len(), |i| a[i].widen() * b[i].widen())
    }

    /// One row of backward. In: scores, `d_dropped = do v^T`, the row's log-sum-exp and `do . o`. Out: dropped probabilities
    /// and gradients of the scores.
    pub(super) fn backward<T>(
        scores: &[f32],
        d_dropped: &[f32],
        sums: (f32, f32),
        keep: Option<(&Dropout, u64)>,
        factors: &mut [f32],
        out: (&mut [T], &mut [T]),
    ) {
        let (len, (log_sum_exp, delta), (probabilities, d_scores)) = (scores.len(), sums, out);
        let (d_dropped, factors) = (&d_dropped[..len], &mut factors[..len]);
        let (probabilities, d_scores) = (&mut probabilities[..len], &mut d_scores[..len]);
        if let Some((dropout, row_key)) = keep {
            dropout.keep_row(row_key, factors);
        } else {
            factors.fill(1.0);
        }
        for i in 0..len {
            let probability = simd::exp_f32(scores[i] - log_sum_exp);
            d_scores[i] = T::narrow(probability * (d_dropped[i] * factors[i] - delta));
            probabilities[i] = T::narrow(probability * factors[i]);
        }
    }
}
