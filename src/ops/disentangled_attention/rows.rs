//! Loops over one row of scores that read position scores or sum their gradients, compiled for the widest
//! vector instructions of the machine.
//!
//! `places` has, for each key of the row, the index of its distance in the position scores.

use crate::simd::kernel;

kernel! {
    /// Adds to the score of each key the query's position score for the distance of the key; `values` are the
    /// position scores of the query.
    pub(super) fn add_by_query(scores: &mut [f32], places: &[u32], values: &[f32]) {
        for (score, &place) in scores.iter_mut().zip(places) {
            *score += values[place as usize];
        }
    }

    /// Adds to the score of each key the key's own position score for its distance; `values` has a row for
    /// each key.
    pub(super) fn add_by_key(scores: &mut [f32], places: &[u32], values: &[f32]) {
        let width = values.len() / scores.len().max(1);
        for (key, (score, &place)) in scores.iter_mut().zip(places).enumerate() {
            *score += values[key * width + place as usize];
        }
    }

    /// Adds the gradients of a row of scores to the gradients of the query's position scores.
    pub(super) fn collect_by_query<T>(d_scores: &[T], places: &[u32], sums: &mut [f32]) {
        for (d_score, &place) in d_scores.iter().zip(places) {
            sums[place as usize] += d_score.widen();
        }
    }

    /// Adds the gradients of a row of scores to the gradients of the keys' position scores; `sums` has a row
    /// for each key.
    pub(super) fn collect_by_key<T>(d_scores: &[T], places: &[u32], sums: &mut [f32]) {
        let width = sums.len() / d_scores.len().max(1);
        for (key, (d_score, &place)) in d_scores.iter().zip(places).enumerate() {
            sums[key * width + place as usize] += d_score.widen();
        }
    }

    /// Rounds sums to the dtype of the products that read them.
    pub(super) fn round<T>(sums: &[f32], rounded: &mut [T]) {
        for (rounded, sum) in rounded.iter_mut().zip(sums) {
            *rounded = T::narrow(*sum);
        }
    }
}
