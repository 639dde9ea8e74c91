//! Takes one text field out of one line of JSON without building the rest of the object.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeSeed;
use serde::de::Deserializer;
use serde::de::IgnoredAny;
use serde::de::MapAccess;
use serde::de::Visitor;
use serde_json::Value;

/// What is wrong with a line: the message, and the column when the JSON itself is broken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) column: Option<usize>,
}

/// The string in `field` of the object `line`; of several, the last one.
pub(super) fn text_of(line: &str, field: &str) -> Result<String, Fault> {
    let plain = |message: String| Fault { message, column: None };
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let value = Field(field).deserialize(&mut deserializer).and_then(|v| deserializer.end().map(|()| v)).map_err(|e| {
        let text = e.to_string();
        let message = text.split(" at line ").next().unwrap_or_default();
        Fault { message: format!("is not a JSON object on one line: {message}"), column: Some(e.column()) }
    })?;
    match value {
        Some(Value::String(text)) => Ok(if text.contains('\r') { text.replace("\r\n", "\n") } else { text }),
        None => Err(plain(format!("field `{field}` is missing"))),
        Some(other) => Err(plain(format!("field `{field}` is {}, a string is wanted", kind_of(&other)))),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

struct Field<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if key.0 == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_found_among_others() {
        let line = r#"{"id": [1, {"text": "no"}], "t\u0065xt": "K\u00e4lytie\r\non \ud83d\ude00", "n": null}"#;
        assert_eq!(text_of(line, "text").unwrap(), "Kälytie\non 😀");
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let message = |line: &str| text_of(line, "text").unwrap_err().message;
        assert_eq!(message(r#"{"title": "a"}"#), "field `text` is missing");
        assert_eq!(message(r#"{"text": 3}"#), "field `text` is a number, a string is wanted");
        assert!(message(r#"{"text": "a"} {"text": "b"}"#).starts_with("is not a JSON object on one line: trailing"));
        assert!(message(r#"["text"]"#).contains("expected an object"));
        assert_eq!(text_of(r#"{"text": "a"#, "text").unwrap_err().column, Some(11));
    }
}
