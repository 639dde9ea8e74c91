//! Scores of named entities: spans read off tags, and precision, recall and F1 of them.
//!
//! Definitions are those of seqeval 1.2.2 in its default mode, which is `conlleval`'s: any sequence of tags
//! has entities, also one that no scheme allows.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::scores::measured::quotient;

/// An entity of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entity<'a> {
    /// What it is, such as `PER`; `_` where its tags name no type.
    pub kind: &'a str,
    /// Its first word.
    pub first: usize,
    /// Its last word.
    pub last: usize,
}

/// The entities of a sentence with these tags, in their order: `O`, or one of `B`, `I`, `E`, `S` with a type
/// behind a hyphen (IOB1, IOB2 and BIOES, or a mixture).
pub fn entities<'a>(tags: &[&'a str]) -> Vec<Entity<'a>> {
    let mut found = Vec::new();
    let (mut before, mut first) = (('O', "_"), 0);
    for (place, tag) in tags.iter().copied().chain(["O"]).enumerate() {
        let now = prefix_and_kind(tag);
        if ends(before, now) {
            found.push(Entity { kind: before.1, first, last: place - 1 });
        }
        if starts(before, now) {
            first = place;
        }
        before = now;
    }
    found
}

/// `B-creative-work` is `B` and `creative-work`.
fn prefix_and_kind(tag: &str) -> (char, &str) {
    let mut characters = tag.chars();
    let prefix = characters.next().unwrap_or('O');
    let rest = characters.as_str();
    let kind = rest.split_once('-').map_or(rest, |(_, kind)| kind);
    (prefix, if kind.is_empty() { "_" } else { kind })
}

/// Whether an entity ends before the tag `now`.
fn ends(before: (char, &str), now: (char, &str)) -> bool {
    let by_prefix = matches!((before.0, now.0), ('E' | 'S', _) | ('B' | 'I', 'B' | 'S' | 'O'));
    by_prefix || before.0 != 'O' && before.1 != now.1
}

/// Whether an entity starts with the tag `now`.
fn starts(before: (char, &str), now: (char, &str)) -> bool {
    let by_prefix = matches!((before.0, now.0), (_, 'B' | 'S') | ('E' | 'S' | 'O', 'E' | 'I'));
    by_prefix || now.0 != 'O' && before.1 != now.1
}

/// How many entities of one type there are, and how many were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u64; 3]", from = "[u64; 3]")]
pub struct EntityCounts {
    /// Entities in the data.
    pub support: u64,
    /// Entities that were predicted.
    pub predicted: u64,
    /// Predicted ones that are in the data, with the same first and last word.
    pub correct: u64,
}

impl From<[u64; 3]> for EntityCounts {
    fn from([support, predicted, correct]: [u64; 3]) -> Self {
        Self { support, predicted, correct }
    }
}

impl From<EntityCounts> for [u64; 3] {
    fn from(counts: EntityCounts) -> Self {
        [counts.support, counts.predicted, counts.correct]
    }
}

impl std::iter::Sum for EntityCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, of| Self {
            support: sum.support + of.support,
            predicted: sum.predicted + of.predicted,
            correct: sum.correct + of.correct,
        })
    }
}

impl EntityCounts {
    /// Share of the predicted entities that are right; 0 where none was predicted, and NaN where there is none in
    /// the data, either.
    pub fn precision(&self) -> f64 {
        self.share(self.correct, self.predicted)
    }

    /// Share of the entities that were found; 0 where all that is predicted is wrong, and NaN where nothing is
    /// predicted, either.
    pub fn recall(&self) -> f64 {
        self.share(self.correct, self.support)
    }

    /// Zero over zero is 0, as in seqeval, unless there are no entities at all: then nothing was measured.
    fn share(&self, part: u64, whole: u64) -> f64 {
        match whole {
            0 if self.support + self.predicted > 0 => 0.0,
            _ => quotient(part as f64, whole as f64),
        }
    }

    /// Harmonic mean of both, in the order of operations of seqeval.
    pub fn f1(&self) -> f64 {
        let (precision, recall) = (self.precision(), self.recall());
        let sum = precision + recall;
        2.0 * precision * recall / if sum == 0.0 { 1.0 } else { sum }
    }
}

/// Entities and words, counted sentence by sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntityTally {
    by_type: BTreeMap<String, EntityCounts>,
    words: u64,
    right_words: u64,
}

impl EntityTally {
    /// Counts a sentence: the tags of its words in the data, and the predicted ones. A type that a scheme of
    /// the data lacks is a type as any other.
    ///
    /// # Panics
    /// Where there are not as many of both.
    pub fn add(&mut self, gold: &[&str], predicted: &[&str]) {
        assert_eq!(gold.len(), predicted.len(), "a tag for each word");
        self.words += gold.len() as u64;
        self.right_words += gold.iter().zip(predicted).filter(|(gold, tag)| gold == tag).count() as u64;
        let in_data = entities(gold);
        for entity in &in_data {
            self.of(entity.kind).support += 1;
        }
        for entity in entities(predicted) {
            // Both lists are in the order of the words.
            let is_right = in_data.binary_search_by_key(&entity.first, |e| e.first);
            let is_right = is_right.is_ok_and(|at| in_data[at] == entity);
            let counts = self.of(entity.kind);
            counts.predicted += 1;
            counts.correct += u64::from(is_right);
        }
    }

    fn of(&mut self, kind: &str) -> &mut EntityCounts {
        self.by_type.entry(kind.to_string()).or_default()
    }

    /// The counts of each type of the data and the predictions, sorted by code point.
    pub fn by_type(&self) -> impl Iterator<Item = (&str, EntityCounts)> {
        self.by_type.iter().map(|(kind, &counts)| (kind.as_str(), counts))
    }

    /// The counts of all types together, whose scores are micro averages.
    pub fn overall(&self) -> EntityCounts {
        self.by_type.values().copied().sum()
    }

    /// Share of the words with the right tag; 0 without words.
    pub fn accuracy(&self) -> f64 {
        quotient(self.right_words as f64, self.words as f64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn spans<'a>(tags: &[&'a str]) -> Vec<(&'a str, usize, usize)> {
        entities(tags).into_iter().map(|e| (e.kind, e.first, e.last)).collect()
    }

    #[test]
    fn entities_of_every_scheme_and_of_none() {
        assert_eq!(spans(&["B-PER", "I-PER", "O", "B-LOC"]), [("PER", 0, 1), ("LOC", 3, 3)]);
        assert_eq!(
            spans(&["I-PER", "I-PER", "B-PER", "I-LOC"]),
            [("PER", 0, 1), ("PER", 2, 2), ("LOC", 3, 3)]
        );
        assert_eq!(spans(&["S-PER", "B-LOC", "I-LOC", "E-LOC"]), [("PER", 0, 0), ("LOC", 1, 3)]);
        assert_eq!(spans(&["E-PER", "E-PER", "I-PER"]), [("PER", 0, 0), ("PER", 1, 1), ("PER", 2, 2)]);
        assert_eq!(
            spans(&["B-creative-work", "I-creative-work", "B"]),
            [("creative-work", 0, 1), ("_", 2, 2)]
        );
        assert_eq!(spans(&[]), []);
    }

    /// Random sequences, malformed ones included; `scripts/make_entity_golden.py` wrote what seqeval says.
    #[test]
    fn scores_are_those_of_seqeval_to_the_last_digit() {
        let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/seqeval.json")).unwrap();
        let words: Vec<&str> =
            golden["tags"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let tags = |text: &Value| -> Vec<&str> {
            text.as_str().unwrap().bytes().map(|byte| words[usize::from(byte - b'A')]).collect()
        };
        let (mut compared, mut sentences) = (0, 0);
        for case in golden["cases"].as_array().unwrap() {
            let mut tally = EntityTally::default();
            let pairs = case["gold"].as_array().unwrap().iter().zip(case["predicted"].as_array().unwrap());
            for (gold, predicted) in pairs {
                tally.add(&tags(gold), &tags(predicted));
                sentences += 1;
            }
            let mut check = |what: &str, want: &Value, counts: EntityCounts| {
                let got = [counts.precision(), counts.recall(), counts.f1(), counts.support as f64];
                let want: Vec<f64> = want.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
                assert_eq!(
                    got.map(f64::to_bits).to_vec(),
                    bits(&want),
                    "{what} of {case}: {got:?}, not {want:?}"
                );
                compared += 1;
            };
            // Of sentences without any entity seqeval says 0, with a warning; here it is not measured.
            if tally.by_type().next().is_some() {
                check("all types", &case["overall"], tally.overall());
            }
            let by_type = case["by_type"].as_object().unwrap();
            assert!(tally.by_type().map(|(kind, _)| kind).eq(by_type.keys()), "{case}");
            tally.by_type().for_each(|(kind, counts)| check(kind, &by_type[kind], counts));
            assert_eq!(tally.accuracy().to_bits(), case["accuracy"].as_f64().unwrap().to_bits(), "{case}");
        }
        assert!(sentences == 2000 && compared > 450, "{compared} scores of {sentences} sentences");
    }

    #[test]
    fn without_entities_nothing_is_measured() {
        let nothing = EntityCounts::default();
        assert!([nothing.precision(), nothing.recall(), nothing.f1()].iter().all(|score| score.is_nan()));
        let missed = EntityCounts { support: 2, ..nothing };
        assert_eq!([missed.precision(), missed.recall(), missed.f1()].map(f64::to_bits), [0; 3]);
        let invented = EntityCounts { predicted: 2, ..nothing };
        assert_eq!([invented.precision(), invented.recall(), invented.f1()].map(f64::to_bits), [0; 3]);
        assert!(EntityTally::default().accuracy().is_nan());
    }

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| value.to_bits()).collect()
    }
}
