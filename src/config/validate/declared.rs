//! Checks of what each field declares about its key: limits of numbers, texts that are empty, and keys that are
//! given but have no effect with the value of another key.

use serde::Serialize;
use serde_json::{Number, Value as Json};

use crate::dotted::join;
use crate::facts::{Facts, declared};
use crate::kind::Kind;
use crate::validate::{Findings, percent_hint};

/// Adds the problems of all values of a configuration.
pub(super) fn declarations<T: Serialize>(kind: Kind, config: &T, findings: &mut Findings) {
    let config = serde_json::to_value(config)
        .expect("configurations hold only tables with text keys, and UTF-8 paths");
    values(kind, "", &config, findings);
    for (path, facts) in declared(kind).conditions() {
        without_effect(kind, path, facts, &config, findings);
    }
}

/// Checks the value at `path` and all values below it.
fn values(kind: Kind, path: &str, value: &Json, findings: &mut Findings) {
    if let Some(facts) = declared(kind).get(path)
        && let Some((message, hint)) = problem(path, value, facts)
    {
        findings.add(&[path], message, hint);
    }
    match value {
        Json::Object(table) => {
            table.iter().for_each(|(key, value)| values(kind, &join(path, key), value, findings));
        }
        Json::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, value)| values(kind, &join(path, &at.to_string()), value, findings));
        }
        _ => {}
    }
}

/// Returns the message and the hint for a value outside of what its field declares.
fn problem(path: &str, value: &Json, facts: &Facts) -> Option<(String, String)> {
    match value {
        // JSON has no form of infinity and NaN, which no file can contain.
        Json::Null if facts.json_type == "number" => {
            Some((format!("`{path}` is no finite number"), "give it one".into()))
        }
        Json::Number(number) if number.is_f64() => fraction(path, number, facts),
        Json::Number(number) => whole(path, number, facts),
        Json::String(text) if text.is_empty() && facts.min_length.is_some() => {
            let example = facts.examples.first().and_then(Json::as_str);
            let hint =
                example.map_or("write it, or leave the key out".into(), |e| format!("write it like `{e}`"));
            Some((format!("`{path}` is empty"), hint))
        }
        Json::Array(items) => {
            let most = facts.max_items.filter(|most| items.len() > *most)?;
            let message = format!("`{path}` has {} items, it can have at most {most}", items.len());
            Some((message, "leave some out".into()))
        }
        _ => None,
    }
}

/// Checks a whole number.
fn whole(path: &str, number: &Number, facts: &Facts) -> Option<(String, String)> {
    let value = number.as_f64()?;
    if let Some(least) = facts.minimum.filter(|least| value < *least) {
        let message = format!("`{path}` is {number}, it must be at least {least}");
        return Some((message, "give it a larger value".into()));
    }
    let most = facts.maximum.filter(|most| value > *most)?;
    Some((format!("`{path}` is {number}, it can be at most {most}"), "look for stray digits".into()))
}

/// Checks a number that need not be whole.
fn fraction(path: &str, number: &Number, facts: &Facts) -> Option<(String, String)> {
    let value = number.as_f64()?;
    let is_above = facts.minimum.is_none_or(|least| value >= least)
        && facts.exclusive_minimum.is_none_or(|least| value > least);
    // Training computes in f32, where 0.99999999 is 1.
    let is_below = facts.maximum.is_none_or(|most| value <= most)
        && facts.exclusive_maximum.is_none_or(|most| (value as f32) < most as f32);
    if is_above && is_below {
        return None;
    }
    let message = format!("`{path}` is {value}, it must {}", limits(facts));
    // A rate of dropout or a decay, from 0 to below 1, is not thought of in percent.
    let most = facts.maximum.or(facts.exclusive_minimum.and(facts.exclusive_maximum));
    let is_share = most.is_some_and(|most| most <= 1.0)
        && facts.examples.first().and_then(Json::as_f64).is_none_or(|usual| usual >= 0.01);
    let hint = match facts.examples.first() {
        _ if is_share && (2.0..=100.0).contains(&value) => percent_hint(value),
        Some(example) => format!("`{example}` is usual"),
        None if is_above => "give it a smaller value".into(),
        None => "give it a larger value".into(),
    };
    Some((message, hint))
}

/// Describes the limits of a number, such as "be above 0".
fn limits(facts: &Facts) -> String {
    if let (Some(least), Some(most)) = (facts.minimum, facts.maximum) {
        return format!("lie between {} and {}", short(least), short(most));
    }
    let limits = [
        facts.minimum.map(|least| format!("at least {}", short(least))),
        facts.exclusive_minimum.map(|least| format!("above {}", short(least))),
        facts.maximum.map(|most| format!("at most {}", short(most))),
        facts.exclusive_maximum.map(|most| format!("below {}", short(most))),
    ];
    format!("be {}", limits.into_iter().flatten().collect::<Vec<_>>().join(" and "))
}

/// A number, with an exponent if it has many zeros.
fn short(value: f64) -> String {
    let plain = format!("{value}");
    if plain.len() > 7 { format!("{value:e}") } else { plain }
}

/// Reports the key at `path` and all keys below it that are given, if the key on which they depend has another
/// value than those with which they have an effect.
fn without_effect(kind: Kind, path: &str, facts: &Facts, config: &Json, findings: &mut Findings) {
    let [other, wanted @ ..] = facts.only_with.as_slice() else { return };
    let [given, has] = [path, other].map(|path| config.pointer(&format!("/{}", path.replace('.', "/"))));
    let (Some(given), Some(Json::String(has))) = (given, has) else { return };
    if wanted.contains(has) {
        return;
    }
    let mut paths = Vec::new();
    not_default(kind, path, given, &mut paths);
    let name = other.rsplit('.').next().unwrap_or(other);
    let hint = match wanted {
        [one] => format!("remove it, or set `{name}: {one}`"),
        several => format!("remove it, or set `{name}` to `{}`", several.join("`, `")),
    };
    for path in paths {
        let message = format!("`{path}` is given, but `{other}: {has}` does not read it");
        findings.add(&[&path, other], message, hint.clone());
    }
}

/// Adds the paths of all keys whose value is not the default. A saved configuration contains every key, so a key
/// with its default counts as not given.
fn not_default(kind: Kind, path: &str, value: &Json, paths: &mut Vec<String>) {
    match value {
        Json::Object(table) => {
            table.iter().for_each(|(key, value)| not_default(kind, &join(path, key), value, paths));
        }
        _ if declared(kind).get(path).is_some_and(|facts| facts.default == *value) => {}
        _ => paths.push(path.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the problems of the value of a key, a line each.
    fn found(path: &str, value: impl Into<Json>) -> String {
        let facts = declared(Kind::Pretrain).get(path).expect("is a key");
        problem(path, &value.into(), facts)
            .map_or(String::new(), |(message, hint)| format!("{message} ({hint})"))
    }

    #[test]
    fn limits_are_named_with_a_hint() {
        let cases: [(&str, Json); 13] = [
            ("data.deduplication.near_threshold", 0.4.into()),
            ("data.deduplication.near_threshold", 80.0.into()),
            ("data.deduplication.shingle_words", 0.into()),
            ("data.deduplication.memory_bytes", (1_u64 << 41).into()),
            ("mlm.mlm_probability", 0.0.into()),
            ("mlm.random_replace_prob", (-0.5).into()),
            ("training.adam_beta2", 0.999_999_99.into()),
            ("training.adam_beta2", 2.0.into()),
            ("training.learning_rate", 0.0.into()),
            ("training.weight_decay", (-1.0).into()),
            ("run.output_dir", "".into()),
            ("data.filters.repetition.max_top_ngram_chars", vec![0.5; 17].into()),
            ("model.roberta.layer_norm_eps", 2.0.into()),
        ];
        let all: Vec<String> = cases.into_iter().map(|(path, value)| found(path, value)).collect();
        insta::assert_snapshot!(all.join("\n"), @"
        `data.deduplication.near_threshold` is 0.4, it must lie between 0.5 and 0.99 (`0.8` is usual)
        `data.deduplication.near_threshold` is 80, it must lie between 0.5 and 0.99 (80 percent is written `0.8`)
        `data.deduplication.shingle_words` is 0, it must be at least 1 (give it a larger value)
        `data.deduplication.memory_bytes` is 2199023255552, it can be at most 1099511627776 (look for stray digits)
        `mlm.mlm_probability` is 0, it must be above 0 and at most 1 (`0.15` is usual)
        `mlm.random_replace_prob` is -0.5, it must lie between 0 and 1 (give it a larger value)
        `training.adam_beta2` is 0.99999999, it must be at least 0 and below 1 (`0.999` is usual)
        `training.adam_beta2` is 2, it must be at least 0 and below 1 (`0.999` is usual)
        `training.learning_rate` is 0, it must be above 0 (give it a larger value)
        `training.weight_decay` is -1, it must be at least 0 (give it a larger value)
        `run.output_dir` is empty (write it like `runs/first`)
        `data.filters.repetition.max_top_ngram_chars` has 17 items, it can have at most 16 (leave some out)
        `model.roberta.layer_norm_eps` is 2, it must be above 0 and at most 1 (`0.00001` is usual)
        ");
        for (path, right) in [("mlm.mlm_probability", 1.0), ("training.adam_beta2", 0.0)] {
            assert_eq!(found(path, right), "");
        }
    }
}
