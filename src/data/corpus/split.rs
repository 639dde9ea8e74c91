//! Splits documents into training and validation by their text alone, so that adding sources never moves one.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::corpus::report::Amount;
use base::error::Problem;
use base::rng::{Purpose, Stream, hash_name};

/// A side of the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// For training.
    Train,
    /// For evaluation.
    Validation,
}

/// Decides the side of each document by its key, which is uniform in [0, 1) and depends on its text alone,
/// not on the seed of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Documents whose key is below this are for validation.
    threshold: f64,
}

impl Split {
    /// Returns the side of a document with this key.
    pub fn side(&self, key: f64) -> Side {
        if key < self.threshold { Side::Validation } else { Side::Train }
    }
}

/// Returns the key of a document: uniform in [0, 1), from its text alone.
pub(super) fn key(text: &str) -> f64 {
    Stream::new(0, Purpose::Split, hash_name(text)).uniform(0)
}

/// Split of a corpus, and the amounts on its sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// The split.
    pub split: Split,
    /// For training.
    pub train: Amount,
    /// For validation.
    pub validation: Amount,
}

/// Counts towards a [`Scan`]; the counts of parts can be merged.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SplitTally {
    threshold: f64,
    train: Amount,
    validation: Amount,
    /// Smallest key, and the amount of the documents that have it.
    lowest: (f64, Amount),
    /// Largest key, and the amount of the documents that have it.
    highest: (f64, Amount),
}

impl SplitTally {
    pub(super) fn new(validation_fraction: f64) -> Self {
        let none = Amount::default();
        Self {
            threshold: validation_fraction,
            train: none,
            validation: none,
            lowest: (2.0, none),
            highest: (-1.0, none),
        }
    }

    pub(super) fn add(&mut self, key: f64, bytes: u64) {
        let one = Amount { documents: 1, bytes };
        if key < self.threshold { &mut self.validation } else { &mut self.train }.merge(one);
        self.stretch((key, one), (key, one));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.train.merge(other.train);
        self.validation.merge(other.validation);
        self.stretch(other.lowest, other.highest);
    }

    fn stretch(&mut self, lowest: (f64, Amount), highest: (f64, Amount)) {
        for (extreme, new, beyond) in [
            (&mut self.lowest, lowest, f64::lt as fn(&f64, &f64) -> bool),
            (&mut self.highest, highest, f64::gt),
        ] {
            if beyond(&new.0, &extreme.0) {
                *extreme = new;
            } else if new.0.total_cmp(&extreme.0).is_eq() {
                extreme.1.merge(new.1);
            }
        }
    }

    /// Returns the split. If the fraction would leave a side of a small corpus empty, the document whose key
    /// is nearest to that side is moved there.
    pub(super) fn finish(&self) -> Result<Scan> {
        let place = "data.sources";
        let threshold = self.threshold;
        let train = self.train;
        let validation = self.validation;
        if train.documents + validation.documents == 0 {
            return Err(Problem::new("hold no text: nothing is left after reading and filters")
                .at(place)
                .hint("`report.html` in the prepared folder shows what was left out, and why")
                .into());
        }
        if threshold <= 0.0 || (train.documents > 0 && validation.documents > 0) {
            return Ok(Scan { split: Split { threshold }, train, validation });
        }
        if self.lowest.0.total_cmp(&self.highest.0).is_eq() {
            return Err(Problem::new("hold one document (or copies of one), but training and validation need one each")
                .at(place)
                .hint("split the text into more documents with `document: paragraph` or `document: line`, or add text")
                .into());
        }
        Ok(if validation.documents == 0 {
            let split = Split { threshold: self.lowest.0.next_up() };
            Scan { split, train: train.without(self.lowest.1), validation: self.lowest.1 }
        } else {
            let split = Split { threshold: self.highest.0 };
            Scan { split, train: self.highest.1, validation: validation.without(self.highest.1) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(numbers: std::ops::Range<u32>) -> Vec<String> {
        numbers.map(|number| format!("Paragraph {number} of a story.")).collect()
    }

    fn scan(texts: &[String], fraction: f64) -> Result<Scan> {
        let mut tally = SplitTally::new(fraction);
        for text in texts {
            tally.add(key(text), text.len() as u64);
        }
        tally.finish()
    }

    #[test]
    fn the_side_depends_on_the_text_alone() {
        let few = validation_texts(&texts(0..300));
        let many = validation_texts(&texts(0..900));
        assert!((15..50).contains(&few.len()), "{}", few.len());
        assert_eq!(few[..], many[..few.len()]);
    }

    #[test]
    fn a_small_corpus_has_a_document_on_each_side_or_is_refused() {
        for fraction in [0.001, 0.999] {
            let texts = ["one", "two", "three"].map(String::from);
            let scan = scan(&texts, fraction).unwrap();
            let (validation, train): (Vec<_>, Vec<_>) =
                texts.iter().partition(|text| scan.split.side(key(text)) == Side::Validation);
            assert_eq!(validation.len(), if fraction < 0.5 { 1 } else { 2 });
            assert_eq!(train.iter().map(|text| text.len() as u64).sum::<u64>(), scan.train.bytes);
        }
        assert!(
            scan(&["same".into(), "same".into()], 0.5).unwrap_err().to_string().contains("hold one document")
        );
        assert!(scan(&[], 0.5).unwrap_err().to_string().contains("hold no text"));
    }

    #[test]
    fn merged_counts_are_those_of_one_pass() {
        let all = texts(0..100);
        let whole = scan(&all, 0.2).unwrap();
        let mut merged = SplitTally::new(0.2);
        for part in all.chunks(7) {
            let mut tally = SplitTally::new(0.2);
            for text in part {
                tally.add(key(text), text.len() as u64);
            }
            merged.merge(&tally);
        }
        assert_eq!(merged.finish().unwrap(), whole);
    }

    fn validation_texts(all: &[String]) -> Vec<String> {
        let split = scan(all, 0.1).unwrap().split;
        all.iter().filter(|text| split.side(key(text)) == Side::Validation).cloned().collect()
    }
}
