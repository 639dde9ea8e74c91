//! The passes over one row of scores, compiled for the widest vectors of the machine.

use crate::ops::dropout::Dropout;
use crate::ops::simd;
use crate::ops::simd::kernel;

kernel! {
    /// One row of forward: scores to probabilities, dropped where `keep` says so; gives the row's
    /// log-sum-exp.
    pub(super) fn softmax<T>(scores: &mut [f32], keep: Option<(&Dropout, u64)>, factors: &mut [f32], probabilities: &mut [T]) -> f32 {
        let len = probabilities.len();
        let (scores, factors) = (&mut scores[..len], &mut factors[..len]);
        let max = simd::max(scores);
        for score in scores.iter_mut() {
            *score = simd::exp_f32(*score - max);
        }
        let sum = simd::sum_of([&*scores], |[score]| score);
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

    /// `out[i] = a_i . b_i` for windows of rows of two matrices, the first `width` of every `stride` values.
    /// All in one loop: rows come from main memory, and while one is added up the next ones are on their way.
    pub(super) fn dots<T>(a: &[T], b: &[T], width: usize, stride: usize, out: &mut [f32]) {
        for (i, out) in out.iter_mut().enumerate() {
            let row = i * stride..i * stride + width;
            *out = simd::sum_of([&a[row.clone()], &b[row]], |[a, b]| a.widen() * b.widen());
        }
    }

    /// One row of backward. In: scores, `d_dropped = do v^T`, the row's log-sum-exp and `do . o`. Out:
    /// dropped probabilities and gradients of the scores.
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
