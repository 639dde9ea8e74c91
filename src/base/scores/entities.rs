//! Scores of named entities: spans read from tags, and their precision, recall and F1.
//!
//! Definitions are those of seqeval 1.2.2 in its default mode, which is that of `conlleval`: any sequence of
//! tags has entities, even one that no tagging scheme allows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scores::measured::quotient;

/// An entity of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entity<'a> {
    /// Its type, such as `PER`; `_` if its tags name no type.
    pub kind: &'a str,
    /// Index of its first word.
    pub first: usize,
    /// Index of its last word.
    pub last: usize,
}

/// The entities of a sentence with these tags, in their order. A tag is `O`, or one of `B`, `I`, `E`, `S`
/// with a type after a hyphen (IOB1, IOB2, BIOES, or a mixture).
pub fn entities<'a>(tags: &[&'a str]) -> Vec<Entity<'a>> {
    let mut found = Vec::new();
    let mut before = ('O', "_");
    let mut first = 0;
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

/// Splits a tag into its prefix and its type: `B-creative-work` gives `B` and `creative-work`.
fn prefix_and_kind(tag: &str) -> (char, &str) {
    let mut characters = tag.chars();
    let prefix = characters.next().unwrap_or('O');
    let rest = characters.as_str();
    let kind = rest.split_once('-').map_or(rest, |(_, kind)| kind);
    (prefix, if kind.is_empty() { "_" } else { kind })
}

/// Returns true if an entity ends between the tags `before` and `now`.
fn ends(before: (char, &str), now: (char, &str)) -> bool {
    let by_prefix = matches!((before.0, now.0), ('E' | 'S', _) | ('B' | 'I', 'B' | 'S' | 'O'));
    by_prefix || before.0 != 'O' && before.1 != now.1
}

/// Returns true if an entity starts with the tag `now`, which follows `before`.
fn starts(before: (char, &str), now: (char, &str)) -> bool {
    let by_prefix = matches!((before.0, now.0), (_, 'B' | 'S') | ('E' | 'S' | 'O', 'E' | 'I'));
    by_prefix || now.0 != 'O' && before.1 != now.1
}

/// Numbers of entities of one type: in the data, predicted, and correctly predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u64; 3]", from = "[u64; 3]")]
pub struct EntityCounts {
    /// Number of entities in the data.
    pub support: u64,
    /// Number of predicted entities.
    pub predicted: u64,
    /// Number of predicted entities that are in the data with the same first and last word.
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
        counts.fold(Self::default(), |sum, one| Self {
            support: sum.support + one.support,
            predicted: sum.predicted + one.predicted,
            correct: sum.correct + one.correct,
        })
    }
}

impl EntityCounts {
    /// Share of the predicted entities that are correct. It is 0 if none is predicted, and NaN if the data
    /// has none either.
    pub fn precision(&self) -> f64 {
        self.share(self.correct, self.predicted)
    }

    /// Share of the entities in the data that were found. It is 0 if the data has none, and NaN if none is
    /// predicted either.
    pub fn recall(&self) -> f64 {
        self.share(self.correct, self.support)
    }

    /// A share of these counts. As in seqeval, zero over zero is 0, unless there are no entities at all: then
    /// nothing was measured.
    fn share(&self, part: u64, whole: u64) -> f64 {
        match whole {
            0 if self.support + self.predicted > 0 => 0.0,
            _ => quotient(part as f64, whole as f64),
        }
    }

    /// Harmonic mean of precision and recall, in seqeval's order of operations.
    pub fn f1(&self) -> f64 {
        let precision = self.precision();
        let recall = self.recall();
        let sum = precision + recall;
        2.0 * precision * recall / if sum == 0.0 { 1.0 } else { sum }
    }
}

/// Counts of entities and words, added up sentence by sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntityTally {
    by_type: BTreeMap<String, EntityCounts>,
    words: u64,
    right_words: u64,
}

impl EntityTally {
    /// Counts a sentence by the tags of its words, in the data and predicted. An entity type that does not
    /// occur in the data counts like any other.
    ///
    /// # Panics
    /// If the two lists have different lengths.
    pub fn add(&mut self, gold: &[&str], predicted: &[&str]) {
        assert_eq!(gold.len(), predicted.len(), "a tag for each word");
        self.words += gold.len() as u64;
        self.right_words += gold.iter().zip(predicted).filter(|(gold, tag)| gold == tag).count() as u64;
        let in_data = entities(gold);
        for entity in &in_data {
            self.counts_mut(entity.kind).support += 1;
        }
        for entity in entities(predicted) {
            // Both lists are sorted by the first word.
            let is_right = in_data.binary_search_by_key(&entity.first, |e| e.first);
            let is_right = is_right.is_ok_and(|at| in_data[at] == entity);
            let counts = self.counts_mut(entity.kind);
            counts.predicted += 1;
            counts.correct += u64::from(is_right);
        }
    }

    fn counts_mut(&mut self, kind: &str) -> &mut EntityCounts {
        self.by_type.entry(kind.to_string()).or_default()
    }

    /// Counts of each type in the data or the predictions, sorted by code point.
    pub fn by_type(&self) -> impl Iterator<Item = (&str, EntityCounts)> {
        self.by_type.iter().map(|(kind, &counts)| (kind.as_str(), counts))
    }

    /// Counts of all types together; their scores are micro averages.
    pub fn overall(&self) -> EntityCounts {
        self.by_type.values().copied().sum()
    }

    /// Share of the words with the right tag; NaN without words.
    pub fn accuracy(&self) -> f64 {
        quotient(self.right_words as f64, self.words as f64)
    }
}

/// Counts of entities as EuroEval counts them, sentence by sentence: of all types, and of all but `MISC`.
///
/// EuroEval gives its tags in lower case to seqeval, which knows prefixes in upper case only, and joins all
/// sentences. Therefore the words between two entities, also over the ends of sentences, are an entity of a
/// type without a name. Entities of one type side by side are one entity. Each entity counts in the sentence
/// in which it ends.
pub fn euroeval_counts(gold: &[Vec<&str>], predicted: &[Vec<&str>]) -> Vec<[EntityCounts; 2]> {
    let all = joined_counts(gold, predicted, false);
    let without_misc = joined_counts(gold, predicted, true);
    all.into_iter().zip(without_misc).map(|(all, without_misc)| [all, without_misc]).collect()
}

/// Counts the entities in joined sentences, by the sentence in which they end.
fn joined_counts(gold: &[Vec<&str>], predicted: &[Vec<&str>], drops_misc: bool) -> Vec<EntityCounts> {
    let mut counts = vec![EntityCounts::default(); gold.len()];
    let mut sentence_of = Vec::new();
    for (sentence, tags) in gold.iter().enumerate() {
        sentence_of.extend(std::iter::repeat_n(sentence, tags.len() + 1));
    }
    let gold = joined(gold, drops_misc);
    let predicted = joined(predicted, drops_misc);
    let gold: Vec<&str> = gold.iter().map(String::as_str).collect();
    let predicted: Vec<&str> = predicted.iter().map(String::as_str).collect();
    let in_data = entities(&gold);
    for entity in &in_data {
        counts[sentence_of[entity.last]].support += 1;
    }
    for entity in entities(&predicted) {
        // No two entities have the same last word.
        let same_end = in_data.binary_search_by_key(&entity.last, |other| other.last);
        let own = &mut counts[sentence_of[entity.last]];
        own.predicted += 1;
        own.correct += u64::from(same_end.is_ok_and(|at| in_data[at] == entity));
    }
    counts
}

/// The tags of all sentences in lower case, each sentence with the `O` that seqeval puts after it. With
/// `drops_misc`, tags that end in `misc` become `o`.
fn joined(sentences: &[Vec<&str>], drops_misc: bool) -> Vec<String> {
    let mut tags = Vec::new();
    for sentence in sentences {
        for tag in sentence {
            let tag = tag.to_lowercase();
            tags.push(if drops_misc && tag.ends_with("misc") { "o".to_string() } else { tag });
        }
        tags.push("O".to_string());
    }
    tags
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::scores::{Metric, Outcomes};

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

    /// Random sequences of tags, including malformed ones. `scripts/make_entity_golden.py` wrote the results
    /// of seqeval.
    #[test]
    fn scores_are_those_of_seqeval_to_the_last_digit() {
        let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/seqeval.json")).unwrap();
        let words: Vec<&str> =
            golden["tags"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let mut compared = 0;
        let mut sentences = 0;
        for case in golden["cases"].as_array().unwrap() {
            let mut tally = EntityTally::default();
            let pairs = case["gold"].as_array().unwrap().iter().zip(case["predicted"].as_array().unwrap());
            for (gold, predicted) in pairs {
                tally.add(&tags_in(gold, &words), &tags_in(predicted, &words));
                sentences += 1;
            }
            // seqeval returns 0, with a warning, for sentences without any entity; here the score is not
            // measured.
            if tally.by_type().next().is_some() {
                assert_scores(&format!("all types of {case}"), &case["overall"], tally.overall());
                compared += 1;
            }
            let by_type = case["by_type"].as_object().unwrap();
            assert!(tally.by_type().map(|(kind, _)| kind).eq(by_type.keys()), "{case}");
            for (kind, counts) in tally.by_type() {
                assert_scores(&format!("{kind} of {case}"), &by_type[kind], counts);
                compared += 1;
            }
            assert_eq!(tally.accuracy().to_bits(), case["accuracy"].as_f64().unwrap().to_bits(), "{case}");
        }
        assert!(sentences == 2000 && compared > 450, "{compared} scores of {sentences} sentences");
    }

    /// Random sequences of IOB2 tags. `scripts/make_euroeval_golden.py` scored them with EuroEval's own steps
    /// and seqeval.
    #[test]
    fn micro_f1_with_and_without_misc_is_euroevals() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/euroeval.json")).unwrap();
        let words: Vec<&str> =
            golden["tags"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let cases = golden["cases"].as_array().unwrap();
        let mut differ = 0;
        for case in cases {
            let mut tally = EntityTally::default();
            let [gold, predicted] = ["gold", "predicted"].map(|side| {
                let sentences = case[side].as_array().unwrap().iter();
                sentences.map(|tags| tags_in(tags, &words)).collect::<Vec<Vec<&str>>>()
            });
            gold.iter().zip(&predicted).for_each(|(gold, predicted)| tally.add(gold, predicted));
            let euroeval = euroeval_counts(&gold, &predicted);
            let outcomes = Outcomes::Entities { sentences: vec![tally.overall(); euroeval.len()], euroeval };
            for metric in [Metric::MicroF1, Metric::MicroF1NoMisc] {
                let want = case[metric.name()].as_f64().unwrap();
                assert_eq!(outcomes.score(metric).to_bits(), want.to_bits(), "{} of {case}", metric.name());
                differ += usize::from((tally.overall().f1() - want).abs() > 0.01);
            }
        }
        assert!(cases.len() == 100 && differ > 50, "{differ}: words outside of entities count, too");
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

    /// The tags of a sentence, written as one letter per word.
    fn tags_in<'a>(text: &Value, tags: &[&'a str]) -> Vec<&'a str> {
        text.as_str().unwrap().bytes().map(|byte| tags[usize::from(byte - b'A')]).collect()
    }

    fn assert_scores(what: &str, want: &Value, counts: EntityCounts) {
        let got = [counts.precision(), counts.recall(), counts.f1(), counts.support as f64];
        let want: Vec<f64> = want.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!(got.map(f64::to_bits).to_vec(), bits(&want), "{what}: {got:?}, not {want:?}");
    }

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| value.to_bits()).collect()
    }
}
