//! The values to try of each varied key: a list as it is, or points of a range.

use crate::axes::Axis;
use crate::shape::Shape;
use base::error::Problem;
use base::rng::{Purpose, Stream};

/// Candidates of one range.
const OF_ONE_RANGE: usize = 9;

/// Candidates of several keys of which at least one has a range.
const OF_SEVERAL: usize = 18;

/// A range of positive numbers whose ends differ by more than this factor is divided by ratios, not by
/// differences.
const LINEAR_FACTOR: f64 = 4.0;

/// Draws for each wanted candidate, after which no further distinct ones are expected.
const MOST_DRAWS: usize = 50;

/// The values of one key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choices {
    /// These, as YAML.
    List(Vec<String>),
    /// All numbers of a range.
    Range(Range),
}

/// Numbers between two others.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Range {
    low: f64,
    high: f64,
    is_whole: bool,
}

impl Choices {
    /// Reads the values of an axis: one text such as `1e-4..1e-2` is a range.
    pub(super) fn read(axis: &Axis, shape: &Shape) -> Result<Self, Problem> {
        let [text] = axis.values.as_slice() else { return Ok(Self::List(axis.values.clone())) };
        let Some((low, high)) = text.split_once("..") else { return Ok(Self::List(axis.values.clone())) };
        let of_key = shape_of(shape, &axis.key);
        let is_whole = matches!(of_key, Some(Shape::Integer { .. } | Shape::IntegerOr { .. }));
        if let Some(other) = of_key.filter(|shape| !is_whole && **shape != Shape::Number) {
            let message = format!("`{}` wants {}, which has no range", axis.key, other.wanted());
            return Err(Problem::usage(message).at(&axis.place).hint("list its values: `key=value,value`"));
        }
        let ends = [low, high].map(|end| end.trim().parse::<f64>().ok().filter(|end| end.is_finite()));
        match ends {
            [Some(low), Some(high)] if low < high && (!is_whole || is_integer(low) && is_integer(high)) => {
                Ok(Self::Range(Range { low, high, is_whole }))
            }
            _ => {
                let kind = if is_whole { "whole number" } else { "number" };
                let message = format!("`{text}` is not a range from a {kind} to a larger one");
                let example = if is_whole { "8..64" } else { "1e-4..1e-2" };
                let hint = format!("write it like `{example}`");
                Err(Problem::usage(message).at(&axis.place).hint(hint))
            }
        }
    }

    /// The value at a place between 0 and 1.
    fn value(&self, place: f64) -> String {
        match self {
            Self::List(values) => {
                let index = (place * values.len() as f64) as usize;
                values[index.min(values.len() - 1)].clone()
            }
            Self::Range(range) => text(range.number(place)),
        }
    }
}

impl Range {
    /// The number at a place between 0 and 1, with three digits unless it is an end or a whole number.
    fn number(&self, place: f64) -> f64 {
        let Self { low, high, is_whole } = *self;
        let is_logarithmic = low > 0.0 && high / low > LINEAR_FACTOR;
        let value = if is_logarithmic { low * (high / low).powf(place) } else { low + place * (high - low) };
        let value = if is_whole { value.round() } else { rounded(value) };
        if place <= 0.0 {
            low
        } else if place >= 1.0 {
            high
        } else {
            value.clamp(low, high)
        }
    }
}

/// Returns the values of each candidate: all combinations of lists unless `count` is less, a grid over the
/// range of one key, or else `count` points that fill the space evenly, drawn by `seed`.
pub(super) fn candidates(choices: &[Choices], count: Option<usize>, seed: u64) -> Vec<Vec<String>> {
    let lists = choices.iter().map(|choices| match choices {
        Choices::List(values) => Some(values.as_slice()),
        Choices::Range(_) => None,
    });
    let lists: Option<Vec<&[String]>> = lists.collect();
    match (choices, lists) {
        (_, Some(lists)) if count.is_none_or(|count| count >= combined(&lists)) => combinations(&lists),
        ([range @ Choices::Range(_)], _) => grid(range, count.unwrap_or(OF_ONE_RANGE)),
        _ => drawn(choices, count.unwrap_or(OF_SEVERAL), seed),
    }
}

/// `count` values from one end of a range to the other, without repeated whole numbers.
fn grid(range: &Choices, count: usize) -> Vec<Vec<String>> {
    let gaps = count.saturating_sub(1).max(1) as f64;
    let mut values: Vec<Vec<String>> = (0..count).map(|at| vec![range.value(at as f64 / gaps)]).collect();
    values.dedup();
    values
}

/// The number of all combinations.
fn combined(lists: &[&[String]]) -> usize {
    lists.iter().fold(1, |count: usize, values| count.saturating_mul(values.len()))
}

/// All combinations; the last key changes fastest.
fn combinations(lists: &[&[String]]) -> Vec<Vec<String>> {
    lists.iter().fold(vec![Vec::new()], |all, values| {
        let longer = all.iter().flat_map(|before: &Vec<String>| {
            values.iter().map(move |value| [&before[..], std::slice::from_ref(value)].concat())
        });
        longer.collect()
    })
}

/// Up to `count` distinct points of the additive sequence of Roberts ("The unreasonable effectiveness of
/// quasirandom sequences", 2018), whose first point `seed` draws.
fn drawn(choices: &[Choices], count: usize, seed: u64) -> Vec<Vec<String>> {
    // The steps are powers of the root of x^(d+1) = x + 1.
    let dimensions = choices.len() as f64;
    let root = (0..64).fold(2.0_f64, |root, _| (1.0 + root).powf(1.0 / (dimensions + 1.0)));
    let stream = Stream::new(seed, Purpose::Tuning, 0);
    let mut found: Vec<Vec<String>> = Vec::new();
    for draw in 1..=count.saturating_mul(MOST_DRAWS) {
        if found.len() == count {
            break;
        }
        let places = (0..choices.len()).map(|key| {
            let step = root.powi(-(key as i32 + 1));
            (stream.uniform(key as u64) + draw as f64 * step).fract()
        });
        let values: Vec<String> = choices.iter().zip(places).map(|(one, place)| one.value(place)).collect();
        if !found.contains(&values) {
            found.push(values);
        }
    }
    found
}

fn is_integer(value: f64) -> bool {
    value.fract() == 0.0
}

/// The number with three digits that is closest to `value`.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// A number as YAML, as short as it is exact.
pub(super) fn text(value: f64) -> String {
    let is_plain = value == 0.0 || (1e-3..1e6).contains(&value.abs());
    if is_plain { value.to_string() } else { format!("{value:e}") }
}

/// The shape of the key at a dotted path, if there is one.
fn shape_of<'a>(shape: &'a Shape, path: &str) -> Option<&'a Shape> {
    path.split('.').try_fold(shape, |here, key| here.field(key).map(|field| &field.shape))
}
