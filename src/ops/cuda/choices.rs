//! Algorithms chosen so far, one for each kind of product: the products whose numbers of rows round up to the
//! same multiple of 128 (`Gemm::in_bucket`).
//!
//! The number of masked rows differs from step to step. If each number had an algorithm of its own, every
//! step would ask the library again, and the bits of a step would depend on which numbers came before. The
//! choices are never dropped: a choice by time may come out differently the second time. Their number is
//! bounded by the kinds of products of a model times the buckets of its largest batch.

use std::collections::{BTreeMap, HashMap};

use super::algorithms::Algorithm;

/// The choice for a kind of product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is computed by this algorithm.
    Algorithm(Algorithm),
    /// The library has no algorithm for it.
    Refused,
}

/// The choices so far, by [`super::described::Description::key`].
#[derive(Debug, Default)]
pub(super) struct Choices(HashMap<String, Choice>);

impl Choices {
    /// Returns the choice for a kind of product, if there was one.
    pub(super) fn get(&self, key: &str) -> Option<Choice> {
        self.0.get(key).copied()
    }

    /// Records the algorithm of a kind of product, or that the library has none for it.
    pub(super) fn insert(&mut self, key: String, chosen: Option<Algorithm>) -> Choice {
        let choice = chosen.map_or(Choice::Refused, Choice::Algorithm);
        self.0.insert(key, choice);
        choice
    }

    /// Returns all algorithms in the order of their descriptions. A product that the library does not have is
    /// left out: asking for it again has the same answer.
    pub(super) fn exported(&self) -> BTreeMap<String, Algorithm> {
        let algorithms = self.0.iter().filter_map(|(key, choice)| match choice {
            Choice::Algorithm(algorithm) => Some((key.clone(), *algorithm)),
            Choice::Refused => None,
        });
        algorithms.collect()
    }

    /// Takes over the algorithms of an earlier run, in place of own choices for the same products.
    pub(super) fn import(&mut self, chosen: &BTreeMap<String, Algorithm>) {
        self.0.extend(chosen.iter().map(|(key, algorithm)| (key.clone(), Choice::Algorithm(*algorithm))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_choices_replace_own_ones_and_refusals_are_not_exported() {
        let mut choices = Choices::default();
        let [one, two] = [1, 2].map(|word| Algorithm([word; 8]));
        for (key, chosen) in [("a", Some(one)), ("b", Some(one)), ("c", None)] {
            choices.insert(key.to_string(), chosen);
        }
        assert_eq!((choices.get("c"), choices.get("d")), (Some(Choice::Refused), None));
        choices.import(&BTreeMap::from([("b".to_string(), two), ("d".to_string(), two)]));
        let wanted = [("a", one), ("b", two), ("d", two)].map(|(key, chosen)| (key.to_string(), chosen));
        assert_eq!(choices.exported(), BTreeMap::from(wanted));
        assert_eq!(choices.get("c"), Some(Choice::Refused));
    }
}
