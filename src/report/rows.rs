//! Counts one row of `predictions.jsonl` for each kind of task, and returns its mistakes.
//!
//! A row that lacks a field gives `None` and is not counted.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::pages::columns::shortened;
use crate::report::units::significant;
use crate::scores::{Entity, EntityTally, LabelTally, entities, mean};

/// Characters of a text that are shown.
const TEXT_CHARS: usize = 300;

/// Characters of labels or tags that are shown.
const LABEL_CHARS: usize = 80;

/// Number of words that are shown before and after a wrong entity.
const WORDS_AROUND: usize = 10;

/// Most pairs of numbers that are drawn.
const MOST_PAIRS: usize = 600;

/// A wrong prediction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wrong {
    /// The text before the wrong words, the wrong words, and the text after them.
    pub(super) text: [String; 3],
    /// The second text of a pair.
    pub(super) pair: Option<String>,
    /// Label, tags or number in the data.
    pub(super) gold: String,
    /// Label, tags or number that the model predicted.
    pub(super) predicted: String,
    /// Confidence of the prediction, a probability; for numbers the distance from the number in the data.
    pub(super) score: f64,
}

/// A target of regression: its name, empty if it is the only one, and pairs of the number in the data and the
/// predicted one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) pairs: Vec<(f64, f64)>,
}

type Row = Map<String, Value>;

/// Counts a row with one label. Names that are not in `names` are added at the end.
pub(super) fn labels(
    row: &Row,
    names: &mut Vec<String>,
    ids: &mut BTreeMap<String, u32>,
    counts: &mut BTreeMap<(u32, u32), u64>,
) -> Option<Vec<Wrong>> {
    let gold = text(row, "gold")?;
    let label = text(row, "label")?;
    let score = row.get("score")?.as_f64()?;
    let pair = [gold, label].map(|name| {
        *ids.entry(name.to_string()).or_insert_with(|| {
            names.push(name.to_string());
            names.len() as u32 - 1
        })
    });
    *counts.entry(pair.into()).or_default() += 1;
    Some(if gold == label { Vec::new() } else { vec![wrong(row, gold, label, score)?] })
}

/// Counts a row with any number of labels. The score of a mistake is the largest distance of a wrong label's
/// probability from 0 or 1.
pub(super) fn sets(row: &Row, names: &[String], tally: &mut LabelTally) -> Option<Vec<Wrong>> {
    let gold = texts(row, "gold")?;
    let labels = texts(row, "labels")?;
    tally.add(&label_ids(&gold, names), &label_ids(&labels, names));
    let probabilities = row.get("probabilities")?.as_object()?;
    let errors = names.iter().filter_map(|name| {
        let is_gold = gold.contains(&name.as_str());
        let wanted = if is_gold { 1.0 } else { 0.0 };
        let is_wrong = is_gold != labels.contains(&name.as_str());
        is_wrong.then_some((probabilities.get(name)?.as_f64()? - wanted).abs())
    });
    let Some(score) = errors.reduce(f64::max) else { return Some(Vec::new()) };
    Some(vec![wrong(row, &joined(&gold), &joined(&labels), score)?])
}

/// The places in `names` of the labels of a row.
fn label_ids(labels: &[&str], names: &[String]) -> Vec<u32> {
    (0..).zip(names).filter(|(_, name)| labels.contains(&name.as_str())).map(|(id, _)| id).collect()
}

fn joined(labels: &[&str]) -> String {
    if labels.is_empty() { "none".to_string() } else { labels.join(", ") }
}

/// Counts a row of tagged words. Returns a mistake for each predicted entity that is not in the data, and for
/// each entity of the data that was not found.
pub(super) fn tags(row: &Row, tally: &mut EntityTally) -> Option<Vec<Wrong>> {
    let words = texts(row, "tokens")?;
    let gold = texts(row, "gold")?;
    let tags = texts(row, "tags")?;
    let scores: Vec<f64> = row.get("scores")?.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    if [gold.len(), tags.len(), scores.len()] != [words.len(); 3] {
        return None;
    }
    tally.add(&gold, &tags);
    let in_data = entities(&gold);
    let found = entities(&tags);
    // A predicted entity with another type or other ends than the one in the data is one mistake, with the
    // words of both.
    let wrong = found.iter().filter(|entity| !in_data.contains(entity)).map(|entity| {
        let same = in_data.iter().filter(|other| overlap(entity, other));
        same.fold((entity.first, entity.last), |(first, last), other| {
            (first.min(other.first), last.max(other.last))
        })
    });
    let missed = in_data.iter().filter(|entity| !found.iter().any(|other| overlap(entity, other)));
    let spans = wrong.chain(missed.map(|entity| (entity.first, entity.last)));
    Some(
        spans
            .map(|(first, last)| Wrong {
                text: marked(&words, first, last + 1),
                pair: None,
                gold: shortened(&gold[first..=last].join(" "), LABEL_CHARS),
                predicted: shortened(&tags[first..=last].join(" "), LABEL_CHARS),
                score: mean(&scores[first..=last]),
            })
            .collect(),
    )
}

fn overlap(a: &Entity<'_>, b: &Entity<'_>) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// Returns the words before, from `first` to before `end`, and after; [`WORDS_AROUND`] words at most on each
/// side.
fn marked(words: &[&str], first: usize, end: usize) -> [String; 3] {
    let from = first.saturating_sub(WORDS_AROUND);
    let to = words.len().min(end + WORDS_AROUND);
    let [before, marked, after] =
        [from..first, first..end, end..to].map(|range| shortened(&words[range].join(" "), TEXT_CHARS));
    let start = if from > 0 { "… " } else { "" };
    let rest = if to < words.len() { " …" } else { "" };
    let before_space = if from < first { " " } else { "" };
    let after_space = if end < to { " " } else { "" };
    [format!("{start}{before}{before_space}"), marked, format!("{after_space}{after}{rest}")]
}

/// Counts a row with one or several numbers. Returns the number with the largest error. One of `every` pairs
/// of each target is kept; when a target is full, every second pair is dropped.
pub(super) fn numbers(
    row: &Row,
    index: u64,
    targets: &mut Vec<Target>,
    every: &mut u64,
) -> Option<Vec<Wrong>> {
    let gold = numbers_in(row.get("gold")?)?;
    let predicted = numbers_in(row.get("prediction")?)?;
    let mut pairs = Vec::with_capacity(gold.len());
    for (name, gold) in &gold {
        let (_, predicted) = predicted.iter().find(|(known, _)| known == name)?;
        pairs.push((*name, *gold, *predicted));
    }
    let (name, gold, predicted) =
        pairs.iter().copied().reduce(|a, b| if (b.1 - b.2).abs() > (a.1 - a.2).abs() { b } else { a })?;
    if index.is_multiple_of(*every) {
        for (name, gold, predicted) in pairs {
            match targets.iter_mut().find(|target| target.name == name) {
                Some(target) => target.pairs.push((gold, predicted)),
                None => targets.push(Target { name: name.to_string(), pairs: vec![(gold, predicted)] }),
            }
        }
    }
    if targets.iter().any(|target| target.pairs.len() > MOST_PAIRS) {
        for target in targets {
            let mut at = 0;
            target.pairs.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        *every *= 2;
    }
    let [gold_text, predicted_text] =
        [gold, predicted].map(|number| format!("{name} {}", significant(number)).trim_start().to_string());
    Some(vec![wrong(row, &gold_text, &predicted_text, (gold - predicted).abs())?])
}

/// One number without a name, or the named numbers of an object.
fn numbers_in(value: &Value) -> Option<Vec<(&str, f64)>> {
    match value {
        Value::Object(several) => {
            several.iter().map(|(name, number)| Some((name.as_str(), number.as_f64()?))).collect()
        }
        one => Some(vec![("", one.as_f64()?)]),
    }
}

fn wrong(row: &Row, gold: &str, predicted: &str, score: f64) -> Option<Wrong> {
    Some(Wrong {
        text: [shortened(text(row, "text")?, TEXT_CHARS), String::new(), String::new()],
        pair: text(row, "text_pair").map(|text| shortened(text, TEXT_CHARS)),
        gold: shortened(gold, LABEL_CHARS),
        predicted: shortened(predicted, LABEL_CHARS),
        score,
    })
}

fn text<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    row.get(name)?.as_str()
}

fn texts<'a>(row: &'a Row, name: &str) -> Option<Vec<&'a str>> {
    row.get(name)?.as_array()?.iter().map(Value::as_str).collect()
}
