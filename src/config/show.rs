//! Writes a resolved configuration as YAML or JSON: for the run folder, and with the origin of each value for
//! `config show`.
//!
//! Secrets are never written: the user part of a URL, and texts with token, key, secret or password in the
//! name of their key, are blanked. A value from a variable with such a name is written as the name of the
//! variable.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;

use crate::defaults::Derived;
use crate::dotted::join;
use crate::tree::Place;
use crate::variables;
use base::secrets;

/// The origin of each value of a configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Origins {
    places: BTreeMap<String, Place>,
    derived: Vec<Derived>,
}

impl Origins {
    pub(super) fn new(places: BTreeMap<String, Place>, derived: Vec<Derived>) -> Self {
        Self { places, derived }
    }

    /// Returns the keys that were not given and whose values were derived from others.
    pub fn derived(&self) -> &[Derived] {
        &self.derived
    }

    /// Returns the origin of the value at a dotted path as [`Self::of`] does; `None` if it was not given.
    pub(super) fn of_given(&self, path: &str) -> Option<String> {
        self.places.contains_key(path).then(|| self.of(path))
    }

    /// Returns the origin of the value at a dotted path: `configs/a.yaml:12`, `--set`, a flag, or `default`,
    /// with the reason if the default depends on something.
    pub fn of(&self, path: &str) -> String {
        match self.places.get(path) {
            Some(Place::File { file, line, .. }) => format!("{file}:{line}"),
            Some(Place::Flag(flag)) => flag.split(' ').next().unwrap_or_default().to_string(),
            None => {
                let key = path.strip_prefix("training.");
                let derived = self.derived.iter().find(|derived| Some(derived.key) == key);
                derived.map_or_else(|| "default".to_string(), |derived| format!("default: {}", derived.from))
            }
        }
    }
}

/// Returns the configuration as YAML, as it is saved in a run folder; secrets are blanked.
pub fn to_yaml<T: Serialize>(config: &T) -> String {
    lines(&as_file(config), |_| None)
}

/// Returns the configuration as indented JSON; secrets are blanked.
pub fn to_json<T: Serialize>(config: &T) -> String {
    format!("{:#}\n", as_file(config))
}

/// Returns the configuration as JSON, as it is saved with checkpoints and compared with another: secrets are
/// blanked, and paths contain the names of their variables.
pub fn saved<T: Serialize>(config: &T) -> Json {
    without_secrets(config, str::to_string)
}

pub(super) fn with_origins<T: Serialize>(config: &T, origins: &Origins) -> String {
    lines(&as_file(config), |path| Some(origins.of(path)))
}

/// Returns the values of a configuration that were given, as YAML with their origins as comments; secrets are
/// blanked.
pub(super) fn given<T: Serialize>(config: &T, origins: &Origins) -> String {
    part(&as_file(config), &|path| origins.of_given(path))
}

/// Returns the values of `json` that have an `origin`, as YAML with the origins as comments.
pub(super) fn part(json: &Json, origin: &dyn Fn(&str) -> Option<String>) -> String {
    lines(&known(json, "", origin).unwrap_or_default(), origin)
}

/// Returns the part of `json` with values that have an origin; `None` if there are none.
fn known(json: &Json, path: &str, origin: &dyn Fn(&str) -> Option<String>) -> Option<Json> {
    match json {
        Json::Object(fields) => {
            let fields = fields.iter();
            let kept = fields
                .filter_map(|(key, value)| Some((key.clone(), known(value, &join(path, key), origin)?)));
            let kept: serde_json::Map<String, Json> = kept.collect();
            (!kept.is_empty() || origin(path).is_some()).then_some(Json::Object(kept))
        }
        Json::Array(items) if items.iter().any(Json::is_object) => {
            let kept: Vec<Json> = items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| known(item, &join(path, &index.to_string()), origin))
                .collect();
            (!kept.is_empty()).then_some(Json::Array(kept))
        }
        other => origin(path).map(|_| other.clone()),
    }
}

/// Like [`saved`], but escaped, so that the loader reads the same configuration from it.
pub(super) fn as_file<T: Serialize>(config: &T) -> Json {
    without_secrets(config, variables::escaped)
}

/// Returns the configuration with secrets blanked; `plain` converts texts that came from no variable.
fn without_secrets<T: Serialize>(config: &T, plain: fn(&str) -> String) -> Json {
    let mut json = serde_json::to_value(config)
        .expect("configurations hold only tables with text keys, and paths read from UTF-8");
    blank(&mut json, "", plain);
    json
}

fn blank(value: &mut Json, key: &str, plain: fn(&str) -> String) {
    match value {
        Json::Object(table) => table.iter_mut().for_each(|(key, value)| blank(value, key, plain)),
        Json::Array(items) => items.iter_mut().for_each(|item| blank(item, key, plain)),
        Json::String(text) => {
            let written = variables::as_written(key, text).unwrap_or_else(|| plain(text));
            *text = without_secret(key, &secrets::masked(&written));
        }
        _ => {}
    }
}

fn without_secret(key: &str, text: &str) -> String {
    const WORDS: [&str; 6] = ["token", "key", "secret", "pass", "passwd", "password"];
    if key.split('_').any(|word| WORDS.contains(&word.to_lowercase().as_str())) {
        return "***".to_string();
    }
    secrets::url(text).into_owned()
}

/// One line of output and the comment at its end.
struct Line {
    text: String,
    comment: Option<String>,
}

fn lines(json: &Json, comment: impl Fn(&str) -> Option<String>) -> String {
    let mut lines = Vec::new();
    table(json, "", 0, &comment, &mut lines);
    let commented = lines.iter().filter(|l| l.comment.is_some());
    // Lines over 60 columns do not count: one long value would push all comments off the screen.
    let column = commented.map(|l| l.text.chars().count()).filter(|n| *n <= 60).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for line in lines {
        text.push_str(&line.text);
        if let Some(comment) = line.comment {
            let gap = column.saturating_sub(line.text.chars().count()).max(2);
            text.extend([&" ".repeat(gap), "# ", &comment]);
        }
        text.push('\n');
    }
    text
}

fn table(
    value: &Json,
    path: &str,
    depth: usize,
    comment: &dyn Fn(&str) -> Option<String>,
    lines: &mut Vec<Line>,
) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let at = join(path, key);
        // Names of keys never need quotes, but names of labels may.
        let head = format!("{}{}:", "  ".repeat(depth), scalar(key));
        match value {
            Json::Object(fields) if !fields.is_empty() => {
                lines.push(Line { text: head, comment: None });
                table(value, &at, depth + 1, comment, lines);
            }
            Json::Array(items) if items.iter().any(|i| i.is_object() || i.is_array()) => {
                lines.push(Line { text: head, comment: None });
                list(items, &at, depth + 1, comment, lines);
            }
            _ => lines.push(Line { text: format!("{head} {}", inline(value)), comment: comment(&at) }),
        }
    }
}

/// Writes a list of tables; the first key of each table follows the dash.
fn list(
    items: &[Json],
    path: &str,
    depth: usize,
    comment: &dyn Fn(&str) -> Option<String>,
    lines: &mut Vec<Line>,
) {
    for (index, item) in items.iter().enumerate() {
        let first = lines.len();
        table(item, &join(path, &index.to_string()), depth + 1, comment, lines);
        if let Some(line) = lines.get_mut(first) {
            line.text.replace_range(depth * 2..depth * 2 + 2, "- ");
        }
    }
}

fn inline(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Json::Object(_) => "{}".to_string(),
        Json::String(text) => scalar(text),
        Json::Number(number) => with_point(&number.to_string()),
        other => other.to_string(),
    }
}

/// Adds `.0` to numbers like `5e-5`: YAML 1.1 readers, such as Python's, take `5e-5` for a text and `5.0e-5`
/// for a number.
fn with_point(number: &str) -> String {
    match number.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => number.to_string(),
    }
}

/// Returns a text as YAML: without quotes (also with a `*` after its start, as in file patterns) if no reader
/// can take it for anything else, otherwise in double quotes.
fn scalar(text: &str) -> String {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        || text.starts_with('/')
        || text.starts_with("./");
    let reserved =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str());
    let is_safe = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./*".contains(c));
    if starts_well && is_safe && !reserved {
        return text.to_string();
    }
    let quoted = Json::from(text).to_string();
    quoted
        .chars()
        .map(|c| if is_printable(c) { c.to_string() } else { format!("\\U{:08x}", u32::from(c)) })
        .collect()
}

/// Returns true for characters that YAML 1.2 allows in a text without escapes, except line breaks and the
/// byte order mark.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree;

    #[test]
    fn secrets_are_blanked_and_ordinary_keys_are_not() {
        let config = serde_json::json!({
            "hub_token": "hf_abcdef", "files": ["https://me:pw@host/a@b.txt", "s3://bucket/x"], "tokenizer": "a", "shard_tokens": 5,
        });
        insta::assert_snapshot!(to_yaml(&config), @r#"
        hub_token: "***"
        files: ["https://***@host/a@b.txt", "s3://bucket/x"]
        tokenizer: a
        shard_tokens: 5
        "#);
    }

    #[test]
    fn names_other_than_plain_words_are_quoted_and_read_back() {
        let names = ["Sci/Tech", "no", "1", "a: b", "it's # \"x\"", "\u{e4}", " "];
        let table: serde_json::Map<String, Json> =
            names.iter().map(|name| ((*name).to_string(), 0.5.into())).collect();
        let yaml = to_yaml(&serde_json::json!({ "weights": table }));
        let root = tree::parse(&yaml, "a.yaml").expect("is valid");
        let entries = root.entries()[0].node.entries();
        let read: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(read.iter().collect::<std::collections::BTreeSet<_>>(), names.iter().collect());
        assert!(entries.iter().all(|entry| entry.node.value == tree::Value::Float(0.5)));
    }

    #[test]
    fn lists_of_tables_and_texts_that_need_quotes() {
        let config = serde_json::json!({
            "data": {"sources": [{"files": ["a b.txt", "c.txt"], "format": "auto"}, {"files": [], "format": "text"}]},
            "name": "no", "lr": 5e-5, "empty": {}, "nothing": null, "text": "two\nlines: # \"x\"",
        });
        insta::assert_snapshot!(to_yaml(&config), @r#"
        data:
          sources:
            - files: ["a b.txt", c.txt]
              format: auto
            - files: []
              format: text
        name: "no"
        lr: 0.00005
        empty: {}
        nothing: null
        text: "two\nlines: # \"x\""
        "#);
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in "(?s).*") {
            let yaml = to_yaml(&serde_json::json!({"text": text}));
            let root = tree::parse(&yaml, "a.yaml").expect("is valid");
            let written = variables::escaped(&without_secret("text", &text));
            prop_assert_eq!(&root.entries()[0].node.value, &tree::Value::Text(written));
        }

        #[test]
        fn any_number_reads_back(number in proptest::num::f64::NORMAL) {
            let yaml = to_yaml(&serde_json::json!({"number": number}));
            let root = tree::parse(&yaml, "a.yaml").expect("is valid");
            prop_assert_eq!(&root.entries()[0].node.value, &tree::Value::Float(number));
        }
    }
}
