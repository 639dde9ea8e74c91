//! Parses YAML or JSON text into a tree in which every key and value has its place in the file.
//!
//! Does not know which keys exist: `check.rs` compares the tree with the wanted shape. YAML 1.2 contains
//! JSON, so one parser reads both. Nesting, aliases and size are limited: no text can exhaust time, stack or
//! memory.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Location, Spanned};

use base::error::Problem;

#[cfg(test)]
mod tests;

/// Largest nesting depth.
const MAX_DEPTH: usize = 32;
/// Largest number of values, once aliases are expanded. Both limits are far above the needs of a
/// configuration and safe for the stack and the memory.
const MAX_VALUES: usize = 20_000;

/// The place of a key or value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In a file, with its name for errors; both numbers start at 1.
    File { file: Arc<str>, line: u64, column: u64 },
    /// On the command line: `--set training.max_steps` or `--train`.
    Flag(String),
}

impl Place {
    /// Returns the place as errors show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::File { file, line, column } => format!("{file}:{line}:{column}"),
            Self::Flag(flag) => flag.clone(),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// A value by YAML's core schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// A text that contained variables, which are filled in.
    Filled(Filled),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A text that contained variables, such as `${HOME}/corpus`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Filled {
    /// The text with the values of the variables.
    pub(super) text: String,
    /// The text as written in the file.
    pub(super) written: String,
    /// True if one of the values is a secret.
    pub(super) is_secret: bool,
}

impl Filled {
    /// Returns the value that the filled-in text would have in a file: `1e-4` is a number.
    pub(super) fn value(&self) -> Value {
        match parse(self.text.trim(), "") {
            _ if self.text.trim().is_empty() => Value::Null,
            Ok(Node { value: Value::List(_) | Value::Table(_), .. }) | Err(_) => {
                Value::Text(self.text.clone())
            }
            Ok(node) => node.value,
        }
    }
}

/// One `key: value` of a table. Tables keep repeated keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Node {
    /// Returns a table without entries.
    pub(super) fn empty_table(place: Place) -> Self {
        Self { value: Value::Table(Vec::new()), place }
    }

    /// Removes a key from a table and returns its entry.
    pub(super) fn take(&mut self, key: &str) -> Option<Entry> {
        let Value::Table(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at))
    }

    /// Returns the entries of a table; none for anything else.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the entries of a table for changes; `None` for anything else.
    pub(super) fn entries_mut(&mut self) -> Option<&mut Vec<Entry>> {
        match &mut self.value {
            Value::Table(entries) => Some(entries),
            _ => None,
        }
    }

    /// Gives this value and all within it the place `place`.
    pub(super) fn placed(mut self, place: &Place) -> Self {
        self.each_place(&mut |own| own.clone_from(place));
        self
    }

    fn each_place(&mut self, change: &mut dyn FnMut(&mut Place)) {
        change(&mut self.place);
        match &mut self.value {
            Value::List(nodes) => nodes.iter_mut().for_each(|node| node.each_place(change)),
            Value::Table(entries) => entries.iter_mut().for_each(|entry| {
                change(&mut entry.place);
                entry.node.each_place(change);
            }),
            _ => {}
        }
    }
}

impl Value {
    /// Returns the text, if the value is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Filled(Filled { text, .. }) => Some(text),
            _ => None,
        }
    }

    /// Describes the value for a message, such as "the text `many`" or "a list". Shows variables by name.
    pub(super) fn described(&self) -> String {
        match self {
            Self::Null => "nothing".to_string(),
            Self::Bool(value) => format!("`{value}`"),
            Self::Integer(value) => format!("`{value}`"),
            Self::Float(value) => format!("`{value}`"),
            Self::Text(text) | Self::Filled(Filled { written: text, .. }) => {
                format!("the text `{}`", shortened(text))
            }
            Self::List(_) => "a list".to_string(),
            Self::Table(_) => "a table".to_string(),
        }
    }
}

/// Returns the first 60 characters of a text on one line.
pub(super) fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect();
    if text.chars().count() > 60 { format!("{line}...") } else { line }
}

/// Parses a whole text; an empty text is an empty table. Problems have the place `file:line:column`.
pub(super) fn parse(text: &str, file: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_VALUES },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_VALUES },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options) {
        Ok(spanned) if spanned.value == Value::Null => {
            Ok(Node::empty_table(Place::File { file: file.into(), line: 1, column: 1 }))
        }
        Ok(spanned) => {
            let mut root = node(spanned);
            let name = Arc::from(file);
            root.each_place(&mut |place| {
                if let Place::File { file, .. } = place {
                    *file = Arc::clone(&name);
                }
            });
            Ok(root)
        }
        Err(error) => {
            let at = error.location().map_or(0, |at| at.line());
            let line = text.lines().nth((at as usize).saturating_sub(1)).unwrap_or_default();
            let problem = syntax_problem(&error, file);
            let is_flow = line.contains("${") && problem.message.starts_with(INVALID);
            Err(if is_flow { problem.hint(QUOTE_VARIABLES) } else { problem })
        }
    }
}

/// Start of messages that come from the YAML scanner.
const INVALID: &str = "not valid YAML or JSON";

const QUOTE_VARIABLES: &str = "between brackets put a text with `${` in quotes: `[\"${HOME}/a.txt\"]`";

fn syntax_problem(error: &Error, file: &str) -> Problem {
    let place = match error.location() {
        Some(at) if at.line() > 0 => format!("{file}:{}:{}", at.line(), at.column()),
        _ => file.to_string(),
    };
    let problem = match error.without_snippet() {
        Error::AliasError { error, .. } => return syntax_problem(error, file),
        Error::MultipleDocuments { .. } => Problem::usage("a second document begins here")
            .hint("keep one configuration a file, without `---` lines between"),
        Error::MergeKeyNotAllowed { .. } => {
            Problem::usage("merge keys (`<<`) are not supported").hint("write the keys out")
        }
        Error::UnknownAnchor { .. } => {
            Problem::usage("an alias without its anchor").hint("put a text that begins with `*` in quotes")
        }
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => too_deep(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_many(),
        other => other_problem(&other.to_string()),
    };
    problem.at(place)
}

fn too_deep() -> Problem {
    Problem::usage(format!("nested more than {MAX_DEPTH} levels deep")).hint("is it really a configuration?")
}

fn too_many() -> Problem {
    let message = format!("holds more than {MAX_VALUES} values, once its aliases (`*name`) are written out");
    Problem::usage(message).hint("is it really a configuration?")
}

/// Converts a message of the YAML scanner, without the place that it repeats.
fn other_problem(text: &str) -> Problem {
    let text = text.split(" at line ").next().unwrap_or_default();
    if text.starts_with("recursion limit") {
        return too_deep();
    }
    let hint = if text.starts_with("unexpected character") {
        "is it a text file?"
    } else if text.starts_with("unsupported tag") {
        "remove the tag: types follow from the key"
    } else {
        "look at the indentation, the colons and the quotes here and in the line above"
    };
    Problem::usage(format!("{INVALID}: {}", shortened(text))).hint(hint)
}

/// Returns a place in the text that is being parsed; `parse` adds the name of the file.
fn place(at: Location) -> Place {
    Place::File { file: Arc::default(), line: at.line(), column: at.column() }
}

fn node(spanned: Spanned<Value>) -> Node {
    Node { place: place(spanned.referenced), value: spanned.value }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> de::Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(i128::try_from(value).map_or(Value::Float(value as f64), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            nodes.push(node(item));
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = pairs.next_entry::<Spanned<String>, Spanned<Value>>()? {
            entries.push(Entry { key: key.value, place: place(key.referenced), node: node(value) });
        }
        Ok(Value::Table(entries))
    }
}
