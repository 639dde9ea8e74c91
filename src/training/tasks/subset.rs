//! Selects a part of the training examples: the same share of each label, chosen by a seed.
//!
//! The same labels, size and seed give the same subset; the order of the examples is kept.

use std::collections::BTreeSet;

use anyhow::Result;

use base::error::Problem;
use base::rng::{Permutation, Purpose, Stream};
use config::ClassifyData;

/// Returns the ascending indices of the examples that a configuration selects from those with these `labels`;
/// `None` if it selects all.
pub(super) fn chosen(labels: &[u32], data: &ClassifyData, seed: u64) -> Result<Option<Vec<usize>>> {
    let taken = subset_size(labels.len(), data.max_train_fraction, data.max_train_samples)?;
    if taken >= labels.len() {
        return Ok(None);
    }
    let mut chosen: BTreeSet<usize> = stratified(labels, taken, seed).into_iter().collect();
    for &share in &data.nested_train_fractions {
        let size = subset_size(labels.len(), Some(share), data.max_train_samples)?;
        chosen.extend(stratified(labels, size, seed));
    }
    Ok(Some(chosen.into_iter().collect()))
}

/// Returns the number of examples to use out of `total`: the smaller of the two limits, at least one.
///
/// `fraction` must be in (0, 1], `samples` must not be 0.
fn subset_size(total: usize, fraction: Option<f64>, samples: Option<usize>) -> Result<usize> {
    let mut size = total;
    if let Some(fraction) = fraction {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Problem::usage(format!("is {fraction}, a number above 0 and at most 1 is wanted"))
                .at("data.max_train_fraction")
                .into());
        }
        size = ((total as f64 * fraction).round() as usize).clamp(1, total.max(1));
    }
    if let Some(samples) = samples {
        if samples == 0 {
            return Err(Problem::usage("is 0, at least 1 is wanted").at("data.max_train_samples").into());
        }
        size = size.min(samples);
    }
    Ok(size.min(total))
}

/// Returns the ascending indices of `size` examples. Each label gets its exact share rounded down or up.
///
/// The examples that are left over after rounding down go first to labels that would have none, then to the
/// largest remainders. Returns all indices if `size` is at least the number of examples.
pub(super) fn stratified(labels: &[u32], size: usize, seed: u64) -> Vec<usize> {
    if size >= labels.len() {
        return (0..labels.len()).collect();
    }
    let classes = labels.iter().max().map_or(0, |last| *last as usize + 1);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); classes];
    for (index, label) in labels.iter().enumerate() {
        members[*label as usize].push(index);
    }
    let counts: Vec<usize> = members.iter().map(Vec::len).collect();
    let mut chosen = Vec::with_capacity(size);
    for (class, (members, take)) in members.iter().zip(shares(&counts, size)).enumerate() {
        let order = Permutation::new(Stream::new(seed, Purpose::Split, class as u64), members.len() as u64);
        chosen.extend((0..take as u64).map(|place| members[order.at(place) as usize]));
    }
    chosen.sort_unstable();
    chosen
}

/// Divides `size` into shares in proportion to `counts` (method of largest remainders, in integers).
pub(super) fn shares(counts: &[usize], size: usize) -> Vec<usize> {
    let total: u128 = counts.iter().map(|count| *count as u128).sum::<u128>().max(1);
    // Each exact share is `exact[class] / total`.
    let exact: Vec<u128> = counts.iter().map(|count| *count as u128 * size as u128).collect();
    let mut shares: Vec<usize> = exact.iter().map(|exact| (exact / total) as usize).collect();
    let left = size - shares.iter().sum::<usize>();
    let mut by_remainder: Vec<usize> = (0..counts.len()).collect();
    by_remainder.sort_by_key(|&class| (shares[class] > 0, std::cmp::Reverse(exact[class] % total), class));
    // A label without examples has no remainder, and there are at most as many examples left over as labels
    // with a remainder.
    for class in by_remainder.into_iter().filter(|class| !exact[*class].is_multiple_of(total)).take(left) {
        shares[class] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts_of(labels: &[u32], indices: &[usize], classes: usize) -> Vec<usize> {
        let mut counts = vec![0; classes];
        for index in indices {
            counts[labels[*index] as usize] += 1;
        }
        counts
    }

    #[test]
    fn a_rare_label_keeps_a_place_while_there_is_one() {
        let labels: Vec<u32> = (0..1000).map(|i| if i == 17 { 2 } else { i % 2 }).collect();
        let chosen = stratified(&labels, 11, 1);
        assert_eq!(counts_of(&labels, &chosen, 3)[2], 1);
        assert_eq!(chosen.len(), 11);
    }

    #[test]
    fn another_seed_gives_another_subset_and_the_same_seed_the_same() {
        let labels: Vec<u32> = (0..400).map(|i| i % 4).collect();
        assert_eq!(stratified(&labels, 40, 7), stratified(&labels, 40, 7));
        assert_ne!(stratified(&labels, 40, 7), stratified(&labels, 40, 8));
    }

    #[test]
    fn sizes_follow_both_limits_and_wrong_ones_are_named() {
        assert_eq!(subset_size(9000, Some(0.1), None).expect("valid"), 900);
        assert_eq!(subset_size(9000, Some(0.1), Some(500)).expect("valid"), 500);
        assert_eq!(subset_size(3, Some(0.01), None).expect("valid"), 1);
        assert_eq!(subset_size(3, None, Some(10)).expect("valid"), 3);
        for (fraction, samples) in
            [(Some(0.0), None), (Some(1.5), None), (Some(f64::NAN), None), (None, Some(0))]
        {
            assert!(
                subset_size(3, fraction, samples)
                    .expect_err("out of range")
                    .to_string()
                    .starts_with("data.max_train_")
            );
        }
    }

    /// With three labels of 6, 6 and 2 examples, ten places are shared out as 4, 4, 2 and eleven as 5, 5, 1.
    #[test]
    fn a_label_that_loses_a_place_in_a_larger_share_keeps_its_examples_in_a_curve() {
        let labels: Vec<u32> = (0..14).map(|i| if i < 12 { i % 2 } else { 2 }).collect();
        assert_eq!(shares(&[6, 6, 2], 10), [4, 4, 2]);
        assert_eq!(shares(&[6, 6, 2], 11), [5, 5, 1]);
        let small = chosen_part(&labels, 10.0 / 14.0, &[]);
        let large = chosen_part(&labels, 11.0 / 14.0, &[10.0 / 14.0]);
        assert!(small.iter().all(|index| large.contains(index)) && large.len() == 12, "{small:?} {large:?}");
        let unnested = chosen_part(&labels, 11.0 / 14.0, &[]);
        assert!(!small.iter().all(|index| unnested.contains(index)));
    }

    fn chosen_part(labels: &[u32], share: f64, nested: &[f64]) -> Vec<usize> {
        let nested_train_fractions = nested.to_vec();
        let data =
            ClassifyData { max_train_fraction: Some(share), nested_train_fractions, ..Default::default() };
        chosen(labels, &data, 3).expect("valid").expect("is a part")
    }

    proptest! {
        #[test]
        fn the_smaller_part_is_in_the_larger(labels in proptest::collection::vec(0u32..6, 2..200), seed: u64,
            mut parts in proptest::collection::vec(0.01f64..0.99, 2..5)) {
            parts.sort_by(f64::total_cmp);
            let mut before: Vec<usize> = Vec::new();
            for (at, part) in parts.iter().enumerate() {
                let nested_train_fractions = parts[..at].to_vec();
                let data = ClassifyData { max_train_fraction: Some(*part), nested_train_fractions, ..Default::default() };
                let Some(now) = chosen(&labels, &data, seed).expect("valid") else { continue };
                prop_assert!(before.iter().all(|index| now.contains(index)));
                before = now;
            }
        }

        #[test]
        fn proportions_hold_within_one(labels in proptest::collection::vec(0u32..6, 1..300), part in 0.0f64..1.2, seed: u64) {
            let size = ((labels.len() as f64 * part) as usize).max(1);
            let chosen = stratified(&labels, size, seed);
            prop_assert_eq!(chosen.len(), size.min(labels.len()));
            prop_assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]));
            let all: Vec<usize> = (0..labels.len()).collect();
            for (taken, there) in counts_of(&labels, &chosen, 6).into_iter().zip(counts_of(&labels, &all, 6)) {
                let exact = there as f64 * chosen.len() as f64 / labels.len() as f64;
                prop_assert!((taken as f64 - exact).abs() < 1.0, "{} of {}", taken, there);
            }
        }
    }
}
