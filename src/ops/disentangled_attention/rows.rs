//! The passes over one row of scores that have to do with positions, compiled for the widest vectors of the
//! machine.

use crate::simd::kernel;

kernel! {
    /// Adds to the score of each key what the query says of the row of its distance.
    pub(super) fn add_by_query(scores: &mut [f32], places: &[u32], values: &[f32]) {
        for (score, &place) in scores.iter_mut().zip(places) {
            *score += values[place as usize];
        }
    }

    /// Adds to the score of each key what it says itself of the row of its distance; `values` has a row for
    /// each key.
    pub(super) fn add_by_key(scores: &mut [f32], places: &[u32], values: &[f32]) {
        let width = values.len() / scores.len().max(1);
        for (key, (score, &place)) in scores.iter_mut().zip(places).enumerate() {
            *score += values[key * width + place as usize];
        }
    }

    /// Adds the gradients of a row of scores to those of what the query said.
    pub(super) fn collect_by_query<T>(d_scores: &[T], places: &[u32], sums: &mut [f32]) {
        for (d_score, &place) in d_scores.iter().zip(places) {
            sums[place as usize] += d_score.widen();
        }
    }

    /// Adds the gradients of a row of scores to those of what each key said.
    pub(super) fn collect_by_key<T>(d_scores: &[T], places: &[u32], sums: &mut [f32]) {
        let width = sums.len() / d_scores.len().max(1);
        for (key, (d_score, &place)) in d_scores.iter().zip(places).enumerate() {
            sums[key * width + place as usize] += d_score.widen();
        }
    }

    /// Rounds sums to the type of the products that take them.
    pub(super) fn round<T>(sums: &[f32], rounded: &mut [T]) {
        for (rounded, sum) in rounded.iter_mut().zip(sums) {
            *rounded = T::narrow(*sum);
        }
    }
}
