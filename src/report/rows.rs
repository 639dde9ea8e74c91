//! One row of predictions of each kind: counted, and what is wrong about it.
//!
//! A row that lacks something is `None` and counts nothing.

use std::collections::BTreeMap;

use serde_json::Map;
use serde_json::Value;

use crate::pages::columns::shortened;
use crate::scores::Entity;
use crate::scores::EntityTally;
use crate::scores::LabelTally;
use crate::scores::entities;
use crate::scores::mean;

/// Characters of a text that are told.
const TEXT_CHARS: usize = 300;

/// Characters of labels or tags that are told.
const LABEL_CHARS: usize = 80;

/// Words before and behind a wrong entity.
const WORDS_AROUND: usize = 10;

/// Pairs of numbers that are drawn.
const MOST_PAIRS: usize = 600;

/// A mistake.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wrong {
    /// What comes before the words that it is about, these, and what comes behind.
    pub(super) text: [String; 3],
    /// The second text of a pair.
    pub(super) pair: Option<String>,
    /// What the data say.
    pub(super) gold: String,
    /// What the model said.
    pub(super) predicted: String,
    /// How sure it was: a probability; of numbers the distance.
    pub(super) score: f64,
}

type Row = Map<String, Value>;

/// One label of many; labels that were not known come behind the known ones.
pub(super) fn labels(
    row: &Row,
    names: &mut Vec<String>,
    ids: &mut BTreeMap<String, u32>,
    counts: &mut BTreeMap<(u32, u32), u64>,
) -> Option<Vec<Wrong>> {
    let (gold, label, score) = (text(row, "gold")?, text(row, "label")?, row.get("score")?.as_f64()?);
    let mut id = |name: &str| {
        *ids.entry(name.to_string()).or_insert_with(|| {
            names.push(name.to_string());
            names.len() as u32 - 1
        })
    };
    *counts.entry((id(gold), id(label))).or_default() += 1;
    Some(if gold == label { Vec::new() } else { vec![wrong(row, gold, label, score)?] })
}

/// Any number of labels: how far the probability of a label is off says how wrong a row is.
pub(super) fn sets(row: &Row, names: &[String], tally: &mut LabelTally) -> Option<Vec<Wrong>> {
    let (gold, labels) = (texts(row, "gold")?, texts(row, "labels")?);
    let has = |labels: &[&str], name: &String| labels.contains(&name.as_str());
    let ids = |labels: &[&str]| -> Vec<u32> {
        (0..).zip(names).filter(|(_, name)| has(labels, name)).map(|(id, _)| id).collect()
    };
    tally.add(&ids(&gold), &ids(&labels));
    let probabilities = row.get("probabilities")?.as_object()?;
    let distance = |name: &String| {
        let wanted = if has(&gold, name) { 1.0 } else { 0.0 };
        let is_wrong = has(&gold, name) != has(&labels, name);
        is_wrong.then_some((probabilities.get(name)?.as_f64()? - wanted).abs())
    };
    let Some(score) = names.iter().filter_map(distance).reduce(f64::max) else { return Some(Vec::new()) };
    let list = |labels: &[&str]| if labels.is_empty() { "none".to_string() } else { labels.join(", ") };
    Some(vec![wrong(row, &list(&gold), &list(&labels), score)?])
}

/// Tags of words: every entity that is not there, or that was not found.
pub(super) fn tags(row: &Row, tally: &mut EntityTally) -> Option<Vec<Wrong>> {
    let (words, gold, tags) = (texts(row, "tokens")?, texts(row, "gold")?, texts(row, "tags")?);
    let scores: Vec<f64> = row.get("scores")?.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    if [gold.len(), tags.len(), scores.len()] != [words.len(); 3] {
        return None;
    }
    tally.add(&gold, &tags);
    let (in_data, found) = (entities(&gold), entities(&tags));
    let overlaps = |a: &Entity<'_>, b: &Entity<'_>| a.first <= b.last && b.first <= a.last;
    // One that has another type or other ends than that of the data is told once, with all of its words.
    let with_data = |entity: &Entity<'_>| {
        let same = in_data.iter().filter(|other| overlaps(entity, other));
        same.fold((entity.first, entity.last), |(first, last), other| {
            (first.min(other.first), last.max(other.last))
        })
    };
    let wrong: Vec<&Entity<'_>> = found.iter().filter(|entity| !in_data.contains(entity)).collect();
    let missed = in_data.iter().filter(|entity| !found.iter().any(|other| overlaps(entity, other)));
    let spans =
        wrong.iter().map(|entity| with_data(entity)).chain(missed.map(|entity| (entity.first, entity.last)));
    let of = |(first, last): (usize, usize)| Wrong {
        text: marked(&words, first, last + 1),
        pair: None,
        gold: shortened(&gold[first..=last].join(" "), LABEL_CHARS),
        predicted: shortened(&tags[first..=last].join(" "), LABEL_CHARS),
        score: mean(&scores[first..=last]),
    };
    Some(spans.map(of).collect())
}

/// The words from `first` to before `end`, with some before and behind them.
fn marked(words: &[&str], first: usize, end: usize) -> [String; 3] {
    let (from, to) = (first.saturating_sub(WORDS_AROUND), words.len().min(end + WORDS_AROUND));
    let part = |from: usize, to: usize| shortened(&words[from..to].join(" "), TEXT_CHARS);
    let (start, rest) = (if from > 0 { "… " } else { "" }, if to < words.len() { " …" } else { "" });
    let space = |is_there: bool| if is_there { " " } else { "" };
    [
        format!("{start}{}{}", part(from, first), space(from < first)),
        part(first, end),
        format!("{}{}{rest}", space(end < to), part(end, to)),
    ]
}

/// Numbers: the one that is farthest off. Of the first number of each row, `pairs` has every so many.
pub(super) fn numbers(
    row: &Row,
    index: u64,
    pairs: &mut Vec<(f64, f64)>,
    every: &mut u64,
) -> Option<Vec<Wrong>> {
    let of = |name: &str| -> Option<Vec<f64>> {
        match row.get(name)? {
            Value::Object(several) => several.values().map(Value::as_f64).collect(),
            one => Some(vec![one.as_f64()?]),
        }
    };
    let (gold, predicted) = (of("gold")?, of("prediction")?);
    let both = gold.iter().copied().zip(predicted.iter().copied());
    let farthest = both.reduce(|a, b| if (b.0 - b.1).abs() > (a.0 - a.1).abs() { b } else { a })?;
    if index.is_multiple_of(*every) {
        pairs.push((*gold.first()?, *predicted.first()?));
    }
    if pairs.len() > MOST_PAIRS {
        let mut at = 0;
        pairs.retain(|_| {
            at += 1;
            at % 2 == 1
        });
        *every *= 2;
    }
    let (gold, predicted) = farthest;
    let number = |value: f64| format!("{value:.3}");
    Some(vec![wrong(row, &number(gold), &number(predicted), (gold - predicted).abs())?])
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
