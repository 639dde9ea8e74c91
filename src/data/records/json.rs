//! Parses a JSON object as Python writes them.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Parses a JSON object. Also accepts `NaN` and infinities as Python's json writes them, and reads them as
/// null.
pub(crate) fn object_of(json: &[u8]) -> serde_json::Result<Map<String, Value>> {
    read_object(json).or_else(|e| match std::str::from_utf8(json).ok().and_then(without_nan) {
        Some(text) => read_object(text.as_bytes()).map_err(|_| e),
        None => Err(e),
    })
}

fn read_object(json: &[u8]) -> serde_json::Result<Map<String, Value>> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let object = deserializer.deserialize_map(EachOnce)?;
    deserializer.end().map(|()| object)
}

/// Visitor for an object that refuses a name which appears twice, since it would be unclear which value is
/// meant.
struct EachOnce;

impl<'de> Visitor<'de> for EachOnce {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("field `{name}` is there twice")));
            }
            object.insert(name, value);
        }
        Ok(object)
    }
}

/// Returns `json` with null for each `NaN`, `Infinity` and `-Infinity`, which Python's `json` writes although
/// they are not valid JSON; `None` without any.
pub(crate) fn without_nan(json: &str) -> Option<String> {
    let mut text = String::with_capacity(json.len() + 16);
    let mut rest = json;
    let mut is_changed = false;
    while let Some(at) = rest.find(['"', 'N', 'I', '-']) {
        let (before, from_match) = rest.split_at(at);
        text.push_str(before);
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| from_match.starts_with(word));
        let (length, written) = match word {
            Some(word) => (word.len(), "null"),
            None if from_match.starts_with('"') => {
                let length = string_bytes(from_match);
                (length, &from_match[..length])
            }
            None => (1, &from_match[..1]),
        };
        is_changed |= word.is_some();
        text.push_str(written);
        rest = &from_match[length..];
    }
    is_changed.then(|| text + rest)
}

/// Returns the length of the string at the start of `json`, including its quotes.
fn string_bytes(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_constants_outside_of_strings_become_null() {
        assert_eq!(without_nan(r#"{"NaN": "-Infinity \" NaN", "n": -1}"#), None);
        let line = r#"{"a": NaN, "b": [-Infinity, Infinity], "text": "NaN \\"}"#;
        let expected = r#"{"a": null, "b": [null, null], "text": "NaN \\"}"#;
        assert_eq!(without_nan(line).unwrap(), expected);
        assert_eq!(without_nan("{\"a\": NaN, \"b").unwrap(), "{\"a\": null, \"b");
    }

    proptest::proptest! {
        #[test]
        fn without_nan_accepts_any_text(text in "[\"\\\\NaIinfty ä-]{0,30}") {
            without_nan(&text);
        }
    }
}
