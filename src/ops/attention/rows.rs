//! Passes over one row of scores, compiled for the widest vectors of the machine.

use std::ops::Range;

use crate::dropout::Dropout;
use crate::simd;
use crate::simd::kernel;

/// Source of the dropout factors of a row of probabilities.
#[derive(Clone, Copy)]
pub(crate) struct Keep<'a> {
    pub(crate) dropout: &'a Dropout,
    pub(crate) row_key: u64,
    /// Index of the first key in its segment.
    pub(crate) first: usize,
}

kernel! {
    /// Forward pass of one row: converts the scores of the keys in `seen` to probabilities, with dropout by
    /// `keep`, and writes 0 for all other keys. Returns the row's log-sum-exp.
    pub(crate) fn softmax<T>(
        scores: &mut [f32],
        seen: Range<usize>,
        keep: Option<Keep<'_>>,
        factors: &mut [f32],
        probabilities: &mut [T],
    ) -> f32 {
        if let Some(keep) = &keep {
            keep.dropout.keep_columns(keep.row_key, keep.first, factors);
        }
        probabilities[..seen.start].fill(T::narrow(0.0));
        probabilities[seen.end..].fill(T::narrow(0.0));
        let scores = &mut scores[seen.clone()];
        let factors = &factors[seen.clone()];
        let probabilities = &mut probabilities[seen];
        let len = probabilities.len();
        let scores = &mut scores[..len];
        let factors = &factors[..len];
        let max = simd::max(scores);
        for score in scores.iter_mut() {
            *score = simd::exp_f32(*score - max);
        }
        let sum = simd::sum_of([&*scores], |[score]| score);
        let inverse = 1.0 / sum;
        if keep.is_some() {
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

    /// Adds a bias to a row of scores, value by value.
    pub(crate) fn add(scores: &mut [f32], bias: &[f32]) {
        for (score, bias) in scores.iter_mut().zip(bias) {
            *score += bias;
        }
    }

    /// Adds a row of gradients of scores to sums, value by value.
    pub(crate) fn collect<T>(d_scores: &[T], sums: &mut [f32]) {
        for (sum, d_score) in sums.iter_mut().zip(d_scores) {
            *sum += d_score.widen();
        }
    }

    /// Computes `out[i] = a_i . b_i` for windows of rows of two matrices: the first `width` of every `stride`
    /// values. A single loop does all rows: they come from main memory, and the next rows are prefetched
    /// while one is summed.
    pub(crate) fn dots<T>(a: &[T], b: &[T], width: usize, stride: usize, out: &mut [f32]) {
        for (i, out) in out.iter_mut().enumerate() {
            let row = i * stride..i * stride + width;
            *out = simd::sum_of([&a[row.clone()], &b[row]], |[a, b]| a.widen() * b.widen());
        }
    }

    /// Backward pass of one row. Inputs: the scores, `d_dropped = do v^T`, and `sums`, the row's log-sum-exp
    /// and `do . o`. Outputs: the dropped probabilities and the gradients of the scores, 0 for keys outside
    /// `seen`.
    pub(crate) fn backward<T>(
        scores: &[f32],
        d_dropped: &[f32],
        sums: (f32, f32),
        seen: Range<usize>,
        keep: Option<Keep<'_>>,
        factors: &mut [f32],
        out: (&mut [T], &mut [T]),
    ) {
        let (log_sum_exp, delta) = sums;
        let (probabilities, d_scores) = out;
        match keep {
            Some(keep) => keep.dropout.keep_columns(keep.row_key, keep.first, factors),
            None => factors.fill(1.0),
        }
        for unseen in [0..seen.start, seen.end..scores.len()] {
            probabilities[unseen.clone()].fill(T::narrow(0.0));
            d_scores[unseen].fill(T::narrow(0.0));
        }
        let scores = &scores[seen.clone()];
        let d_dropped = &d_dropped[seen.clone()];
        let factors = &factors[seen.clone()];
        let probabilities = &mut probabilities[seen.clone()];
        let d_scores = &mut d_scores[seen];
        let len = scores.len();
        let d_dropped = &d_dropped[..len];
        let factors = &factors[..len];
        let probabilities = &mut probabilities[..len];
        let d_scores = &mut d_scores[..len];
        for i in 0..len {
            let probability = simd::exp_f32(scores[i] - log_sum_exp);
            d_scores[i] = T::narrow(probability * (d_dropped[i] * factors[i] - delta));
            probabilities[i] = T::narrow(probability * factors[i]);
        }
    }
}
