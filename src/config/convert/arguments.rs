//! The arguments of another training program: flat keys with JSON values.

use serde_json::Value as Json;

use crate::tree::{Filled, Node, Value};

/// Keys and values in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<(String, Json)>);

impl Arguments {
    /// Reads a table of arguments. The error is the end of a message, such as `holds no arguments`.
    pub(super) fn read(root: &Node) -> Result<Self, String> {
        let Value::Table(entries) = &root.value else {
            return Err(format!("wants a table of arguments, not {}", root.value.described()));
        };
        if entries.is_empty() {
            return Err("holds no arguments".to_string());
        }
        let mut read: Vec<(String, Json)> = Vec::new();
        for entry in entries {
            let key = entry.key.trim_start_matches('-').replace('-', "_");
            let value = json(&entry.node.value);
            // The last of several values counts, as for Python's readers.
            match read.iter_mut().find(|(name, _)| *name == key) {
                Some((_, earlier)) => *earlier = value,
                None => read.push((key, value)),
            }
        }
        Ok(Self(read))
    }

    /// Returns all keys and values.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the value of a key, unless it is off or empty.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        self.all().find(|(name, value)| *name == key && !is_off_or_empty(value)).map(|(_, value)| value)
    }

    /// Like [`Arguments::get`], for a text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Returns true if one of the keys is there, with any value.
    pub(super) fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.all().any(|(name, _)| name == *key))
    }

    /// Returns true if the value of a key is `true`.
    pub(super) fn is_on(&self, key: &str) -> bool {
        self.get(key) == Some(&Json::Bool(true))
    }
}

/// Returns true if a value is null, false or empty.
pub(super) fn is_off_or_empty(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::String(text) => text.is_empty() || text == "None",
        Json::Array(items) => items.is_empty(),
        Json::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Integer(value) => i64::try_from(*value).map_or_else(|_| Json::from(*value as f64), Json::from),
        Value::Float(value) => Json::from(*value),
        Value::Text(text) | Value::Filled(Filled { text, .. }) => Json::from(text.as_str()),
        Value::List(nodes) => nodes.iter().map(|node| json(&node.value)).collect(),
        Value::Table(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json(&entry.node.value))).collect())
        }
    }
}
