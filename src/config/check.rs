//! Compares a tree with the wanted shape: collects every unknown key, wrong type and missing key, and
//! converts the rest to JSON.
//!
//! Checks one value at a time; `validate` checks combinations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use crate::dotted::join;
use crate::shape::{Field, INCLUDE, PROFILES, Shape, name_of, quoted};
use crate::suggest::closest;
use crate::tree::{Entry, Node, Place, Value, shortened};
use crate::{foreign, scalar};
use base::error::Problem;
use base::families::Family;

/// The key of a family's table in configurations of `pretrain`, and of a model folder in those of `finetune`.
const MODEL: &str = "model";

/// Start of the dotted paths of phases.
const PHASES: &str = "training.phases.";

/// The result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Each problem with its place.
    pub(super) problems: Vec<Wrong>,
    /// From the dotted path of each given value to its place. Values that are not given take the default.
    pub(super) places: BTreeMap<String, Place>,
    /// Paths whose written value was wrong and was replaced by a placeholder. The empty path means the whole
    /// configuration.
    pub(super) replaced: BTreeSet<String>,
}

/// A problem at a place of the tree.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Wrong {
    /// Converts to an error for users.
    pub(super) fn problem(self) -> Problem {
        Problem { hint: self.hint, ..Problem::usage(self.message).at(self.place.shown()) }
    }
}

/// Compares `root` with `shape`. The JSON can be deserialized into the struct of that shape even if there are
/// problems: wrong values are left out, and missing required ones are replaced by placeholders.
pub(super) fn check(root: &Node, shape: &Shape) -> (Json, Checked) {
    let mut checker = Checker { root: shape, checked: Checked::default() };
    let value = checker.value(root, shape, "").unwrap_or_else(|| {
        checker.checked.replaced.insert(String::new());
        empty(shape)
    });
    (value, checker.checked)
}

/// Largest number of places of a key that a hint names; more would not help.
const MOST_PLACES: usize = 3;

/// Returns the problem "unknown key" with a hint at the key that was probably meant. Hints that are certain
/// come before those from similar spelling.
pub(super) fn unknown_key(place: Place, key: &str, path: &str, table: &Shape, root: &Shape) -> Wrong {
    let names: Vec<&str> = table.fields().iter().map(|f| f.name.as_str()).collect();
    let family = path.strip_prefix("model.").and_then(Family::named);
    let elsewhere = if family.is_some() { Vec::new() } else { places(root, name_of(key)) };
    let hint = if [INCLUDE, PROFILES].contains(&key) {
        format!("`{key}` stands at the top of a file")
    } else if path == MODEL && key.to_lowercase().starts_with("deberta") {
        "write `deberta-v2`, which is DeBERTa-v2 and v3".to_string()
    } else if path == MODEL && foreign::is_family(key) {
        format!("this family is not built; those that are: {}", Family::names("and"))
    } else if let Some((family, own)) = family.and_then(|family| Some((family, family.key(key)?)))
        && own != key
    {
        format!("{} calls it `{own}`", family.title)
    } else if path.starts_with(PHASES) && !elsewhere.is_empty() {
        format!("a phase does not change it; what it can change: {}", quoted(&names[1..]))
    } else if let Some(known) = foreign::key(key).filter(|_| elsewhere.len() != 1) {
        known.hint()
    } else if (1..=MOST_PLACES).contains(&elsewhere.len()) {
        format!("`{key}` belongs elsewhere: {}", quoted(&elsewhere))
    } else if let Some(name) = closest(key, &names) {
        format!("did you mean `{name}`?")
    } else if names.len() <= 10 {
        format!("known keys here: {}", quoted(&names))
    } else {
        "`mlmtrain config schema` lists every key".to_string()
    };
    let within = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
    Wrong { place, message: format!("unknown key `{}`{within}", shortened(key)), hint: Some(hint) }
}

/// Returns the dotted paths of all keys of this name. A key of several families counts as one place,
/// `model.<family>.key`.
pub(super) fn places(root: &Shape, key: &str) -> Vec<String> {
    let mut places = root.find(key);
    if places.iter().filter(|place| is_in_family(place)).count() > 1 {
        places.retain(|place| !is_in_family(place));
        places.push(format!("model.<family>.{key}"));
    }
    places
}

/// Returns true if a dotted path is that of a key in a family's table.
fn is_in_family(place: &str) -> bool {
    let family = place.strip_prefix("model.").and_then(|rest| rest.split_once('.'));
    family.is_some_and(|(family, _)| Family::named(family).is_some())
}

struct Checker<'a> {
    root: &'a Shape,
    checked: Checked,
}

impl Checker<'_> {
    fn report(&mut self, place: &Place, message: String, hint: Option<String>) {
        self.checked.problems.push(Wrong { place: place.clone(), message, hint });
    }

    fn value(&mut self, node: &Node, shape: &Shape, path: &str) -> Option<Json> {
        let found = match (shape, &node.value) {
            (Shape::Table(_), Value::Table(entries)) => Some(self.table(entries, node, shape, path)),
            // A section without a value is an empty table, such as `training:` with all its keys commented
            // out.
            (Shape::Table(_), Value::Null) => Some(self.table(&[], node, shape, path)),
            (Shape::List(item), Value::List(nodes)) => Some(self.list(nodes, item, path)),
            (Shape::WordOrNumbers { .. }, Value::Table(entries)) => Some(self.numbers(entries, path)),
            (Shape::Table(_) | Shape::List(_), _) => None,
            (_, value) => match scalar::scalar(value, shape, path) {
                Ok(value) => Some(value),
                Err((message, hint)) => {
                    let is_table = matches!(value, Value::Table(_));
                    let hint =
                        if path == MODEL && is_table { foreign::model_hint(false).into() } else { hint };
                    self.report(&node.place, format!("`{path}` {message}"), Some(hint));
                    return None;
                }
            },
        };
        match &found {
            None => {
                let hint = match shape {
                    Shape::List(_) => "write it as `[a, b]`, or one `- item` a line",
                    _ if path == MODEL => foreign::model_hint(true),
                    _ => "write its keys below it, indented by two spaces",
                };
                let name = if path.is_empty() { "a configuration".to_string() } else { format!("`{path}`") };
                self.report(
                    &node.place,
                    format!("{name} wants {}, not {}", shape.wanted(), node.value.described()),
                    Some(hint.to_string()),
                );
            }
            Some(_) if !path.is_empty() => {
                self.checked.places.insert(path.to_string(), node.place.clone());
            }
            Some(_) => {}
        }
        found
    }

    fn table(&mut self, entries: &[Entry], node: &Node, shape: &Shape, path: &str) -> Json {
        let mut values = Map::new();
        let mut seen: BTreeMap<&str, &Entry> = BTreeMap::new();
        for entry in entries {
            let Some(field) = shape.field(&entry.key) else {
                let wrong = unknown_key(entry.place.clone(), &entry.key, path, shape, self.root);
                self.checked.problems.push(wrong);
                // A mistyped key is reported once: the key that was meant is not also reported as missing.
                let names: Vec<&str> = shape.fields().iter().map(|f| f.name.as_str()).collect();
                self.checked.replaced.extend(closest(&entry.key, &names).map(|name| join(path, name)));
                // Nor is a model with an unknown family also reported as a model without family.
                self.checked.replaced.extend((path == MODEL).then(|| MODEL.to_string()));
                continue;
            };
            if let Some(first) = seen.insert(&field.name, entry) {
                self.repeated(entry, first);
                continue;
            }
            self.entry(&mut values, entry, field, &join(path, &field.name));
        }
        for field in shape.fields().iter().filter(|f| f.required && !seen.contains_key(f.name.as_str())) {
            let at = join(path, &field.name);
            if self.checked.replaced.insert(at.clone()) {
                self.report(
                    &node.place,
                    format!("`{at}` is missing"),
                    Some(format!("add `{}`, {}", field.name, field.about)),
                );
            }
            values.insert(field.name.clone(), empty(&field.shape));
        }
        Json::Object(values)
    }

    fn entry(&mut self, values: &mut Map<String, Json>, entry: &Entry, field: &Field, at: &str) {
        let is_null = match &entry.node.value {
            // As on the command line, an empty value and `null` mean no value for optional keys.
            Value::Filled(filled) => ["", "null", "~"].contains(&filled.text.trim()),
            value => *value == Value::Null,
        };
        // The name of a family alone means a model of that family with its defaults.
        let is_family = matches!(field.shape, Shape::Table(_)) && at.starts_with("model.");
        if field.optional && is_null && !is_family {
            self.checked.places.insert(at.to_string(), entry.node.place.clone());
            values.insert(field.name.clone(), Json::Null);
        } else if let Some(value) = self.value(&entry.node, &field.shape, at) {
            // The place is that of the key, which readers search in a file: its value may start lines below.
            let place =
                if matches!(entry.node.place, Place::Flag(_)) { &entry.node.place } else { &entry.place };
            self.checked.places.insert(at.to_string(), place.clone());
            values.insert(field.name.clone(), value);
        } else {
            self.checked.replaced.insert(at.to_string());
            if field.required {
                values.insert(field.name.clone(), empty(&field.shape));
            }
        }
    }

    fn repeated(&mut self, entry: &Entry, first: &Entry) {
        let line = match (&first.place, &entry.place) {
            (Place::File { file, line, .. }, Place::File { file: own, .. }) if file == own => {
                format!("in line {line}")
            }
            (Place::File { file, line, .. }, _) => format!("in {file}:{line}"),
            (Place::Flag(flag), _) => format!("by `{flag}`"),
        };
        let message = format!("key `{}` is given a second time, first {line}", entry.key);
        let hint = if entry.key == first.key {
            "keep one of the two".to_string()
        } else {
            format!("keep one of the two: `{}` and `{}` mean the same", first.key, entry.key)
        };
        self.report(&entry.place, message, Some(hint));
    }

    /// Converts a table of numbers whose keys are the user's own names.
    fn numbers(&mut self, entries: &[Entry], path: &str) -> Json {
        let mut values = Map::new();
        let mut seen: BTreeMap<&str, &Entry> = BTreeMap::new();
        for entry in entries {
            if let Some(first) = seen.insert(&entry.key, entry) {
                self.repeated(entry, first);
                continue;
            }
            let at = join(path, &entry.key);
            match self.value(&entry.node, &Shape::Number, &at) {
                Some(value) => drop(values.insert(entry.key.clone(), value)),
                None => drop(self.checked.replaced.insert(path.to_string())),
            }
        }
        Json::Object(values)
    }

    fn list(&mut self, nodes: &[Node], item: &Shape, path: &str) -> Json {
        let mut values = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let at = join(path, &index.to_string());
            values.push(self.value(node, item, &at).unwrap_or_else(|| {
                self.checked.replaced.insert(at);
                empty(item)
            }));
        }
        Json::Array(values)
    }
}

/// Returns a placeholder for a missing or wrong value, so that the rest can be checked.
fn empty(shape: &Shape) -> Json {
    match shape {
        Shape::Table(fields) => Json::Object(
            fields
                .iter()
                .filter(|f| f.required)
                .map(|f| (f.name.clone(), empty(&f.shape)))
                .collect::<Map<_, _>>(),
        ),
        Shape::List(_) => Json::Array(Vec::new()),
        Shape::Text => Json::from(""),
        Shape::Integer { .. } | Shape::IntegerOr { .. } => Json::from(0),
        Shape::Number => Json::from(0.0),
        Shape::Bool | Shape::BoolOr { .. } => Json::from(false),
        Shape::WordOrNumbers { word } => Json::from(word.as_str()),
        Shape::Choice(names) => Json::from(names.first().map(String::as_str)),
    }
}
