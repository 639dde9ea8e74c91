//! Takes the text and the title out of one JSON object without building the rest of it.
//!
//! Strings are read as bytes: half of a surrogate pair (`"\ud83d"`), which Python writes without complaint
//! and which is no UTF-8, is treated like any other invalid byte.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use serde::de::DeserializeSeed;
use serde::de::Deserializer;
use serde::de::Error;
use serde::de::IgnoredAny;
use serde::de::MapAccess;
use serde::de::Visitor;
use serde_json::Map;
use serde_json::Value;

use crate::corpus::read::assembly::Assembly;
use crate::corpus::read::assembly::Origin;
use crate::corpus::read::files::Columns;
use crate::corpus::read::utf8::Decoded;
use crate::error::Problem;

/// Fields that an error lists at most.
const LISTED_FIELDS: usize = 12;

/// The document of the object `json`, which begins in column `column` (from 1) of its line.
pub(super) fn read(
    json: &[u8],
    origin: Origin<'_>,
    column: u64,
    columns: &Columns,
    out: &mut Assembly,
) -> Result<()> {
    let Some(mut decoded) = out.decode(json, origin)? else { return Ok(()) };
    let mut found = fields_of(&decoded.text, columns);
    if found.is_err()
        && let Some(text) = without_nan(&decoded.text)
        && fields_of(&text, columns).is_ok()
    {
        decoded.text = Cow::Owned(text);
        found = fields_of(&decoded.text, columns);
    }
    let fields = match found {
        Ok(fields) => fields,
        Err(fault) => {
            let mut problem = Problem::new(fault.message);
            problem.hint = fault.hint;
            let place = out.location(origin.line + fault.line - 1);
            let column = if fault.line == 1 { column + fault.column.saturating_sub(1) } else { fault.column };
            let problem = problem.at(format!("{place}:{column}"));
            return out.bad_record(origin.line, problem, json.len() as u64, json);
        }
    };
    let Some(mut text) = text_of(&columns.text, fields.text, origin, out)? else { return Ok(()) };
    let title = match &columns.title {
        Some(name) => text_of(name, fields.title, origin, out)?,
        None => Some(Decoded::default()),
    };
    let Some(title) = title else { return Ok(()) };
    text.replaced += decoded.replaced;
    out.record(Some(title), Some(text), origin.line);
    Ok(())
}

/// `json` with null for each `NaN`, `Infinity` and `-Infinity`, which Python's json writes and which are no
/// JSON; `None` where there are none.
pub fn without_nan(json: &str) -> Option<String> {
    let mut text = String::with_capacity(json.len() + 16);
    let (mut rest, mut is_changed) = (json, false);
    while let Some(at) = rest.find(['"', 'N', 'I', '-']) {
        let (before, behind) = rest.split_at(at);
        text.push_str(before);
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| behind.starts_with(word));
        let (length, written) = match word {
            Some(word) => (word.len(), "null"),
            None if behind.starts_with('"') => {
                let length = string_bytes(behind);
                (length, &behind[..length])
            }
            None => (1, &behind[..1]),
        };
        is_changed |= word.is_some();
        text.push_str(written);
        rest = &behind[length..];
    }
    is_changed.then(|| text + rest)
}

/// The length of the string that `json` begins with, up to and with its second quote.
fn string_bytes(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

/// The string of a field, empty for null; `None` where the object has been left out because of it.
fn text_of<'a>(
    name: &str,
    field: Field<'a>,
    origin: Origin<'_>,
    out: &mut Assembly,
) -> Result<Option<Decoded<'a>>> {
    let whole = format!("field `{name}`, which has half of a surrogate pair");
    let origin = Origin { whole: &whole, offset: 0, ..origin };
    match field {
        Field::Missing | Field::Null => Ok(Some(Decoded::default())),
        Field::Text(Cow::Borrowed(bytes)) => out.decode(bytes, origin),
        Field::Text(Cow::Owned(bytes)) => {
            let decoded = out.decode(&bytes, origin)?;
            Ok(decoded.map(|decoded| Decoded {
                text: decoded.text.into_owned().into(),
                replaced: decoded.replaced,
            }))
        }
    }
}

/// What is wrong with an object, and where in it (line and column from 1).
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    message: String,
    hint: Option<String>,
    line: u64,
    column: u64,
}

/// What was found under a name.
#[derive(Debug, Default, PartialEq, Eq)]
enum Field<'a> {
    #[default]
    Missing,
    Null,
    Text(Cow<'a, [u8]>),
}

/// The fields that were asked for.
#[derive(Debug, Default)]
struct Fields<'a> {
    text: Field<'a>,
    title: Field<'a>,
}

/// The strings in the fields that `columns` names. A name that comes twice is an error, as everywhere: of two,
/// it would not be known which one is meant.
fn fields_of<'a>(json: &'a str, columns: &Columns) -> Result<Fields<'a>, Fault> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let found =
        deserializer.deserialize_map(Wanted(columns)).and_then(|found| deserializer.end().map(|()| found));
    match found {
        Ok(fields)
            if fields.text != Field::Missing
                && (columns.title.is_none() || fields.title != Field::Missing) =>
        {
            Ok(fields)
        }
        Ok(_) => Err(explain(json, columns, None)),
        Err(e) => Err(explain(json, columns, Some(&e))),
    }
}

/// Looks again at an object from which the fields could not be taken.
fn explain(json: &str, columns: &Columns, error: Option<&serde_json::Error>) -> Fault {
    let at_start = |message: String, hint: Option<String>| Fault { message, hint, line: 1, column: 1 };
    let broken = |e: &serde_json::Error| {
        let text = e.to_string();
        let message = format!("is not a JSON object: {}", text.split(" at line ").next().unwrap_or_default());
        Fault { message, hint: None, line: e.line().max(1) as u64, column: e.column().max(1) as u64 }
    };
    let object: Map<String, Value> = match (serde_json::from_str(json), error) {
        (Ok(Value::Object(object)), _) => object,
        (Ok(other), _) => return at_start(format!("is {}, a JSON object is wanted", kind_of(&other)), None),
        (Err(_), Some(e)) => return broken(e),
        (Err(e), None) => return broken(&e),
    };
    for (key, name) in [("field", Some(&columns.text)), ("title_field", columns.title.as_ref())] {
        let Some(name) = name else { continue };
        match object.get(name) {
            Some(Value::String(_) | Value::Null) => {}
            Some(other) => {
                return at_start(format!("field `{name}` is {}, a string is wanted", kind_of(other)), None);
            }
            None => {
                let names = object.keys().map(String::as_str);
                return at_start(
                    format!("field `{name}` is missing"),
                    Some(known_names(key, "fields", names)),
                );
            }
        }
    }
    error.map_or_else(|| at_start("is not a JSON object that can be read".to_string(), None), broken)
}

/// The hint that lists what there is instead of a name that there is not; `key` is the configuration key to
/// set.
pub(super) fn known_names<'a>(key: &str, kind: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return format!("there are no {kind} at all");
    }
    let listed = names
        .iter()
        .take(LISTED_FIELDS)
        .map(|name| format!("`{}`", name.chars().take(60).collect::<String>()));
    let more = if names.len() > LISTED_FIELDS {
        format!(" and {} more", names.len() - LISTED_FIELDS)
    } else {
        String::new()
    };
    format!("set `{key}` to one of the {kind}: {}{more}", listed.collect::<Vec<_>>().join(", "))
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

struct Wanted<'a>(&'a Columns);

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut seen) = (Fields::default(), BTreeSet::new());
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if seen.contains(&key.0) {
                let name: String = key.0.chars().take(60).collect();
                return Err(A::Error::custom(format!("field `{name}` is there twice")));
            }
            if key.0 == self.0.text {
                found.text = map.next_value_seed(Text)?;
            } else if self.0.title.as_deref() == Some(key.0.as_ref()) {
                found.title = map.next_value_seed(Text)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            seen.insert(key.0);
        }
        Ok(found)
    }
}

#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// A string as bytes, or null.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Field<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Field<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        Ok(Field::Text(Cow::Borrowed(bytes)))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Field::Text(Cow::Owned(bytes.to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str) -> Columns {
        Columns { text: text.to_string(), title: None }
    }

    fn bytes<'a>(field: &'a Field<'_>) -> &'a [u8] {
        match field {
            Field::Text(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_field_is_found_among_others() {
        let line = r#"{"id": [1, {"text": "no"}], "t\u0065xt": "K\u00e4lyti\ron \ud83d\ude00", "n": null}"#;
        assert_eq!(bytes(&fields_of(line, &columns("text")).unwrap().text), "Kälyti\ron 😀".as_bytes());
        assert_eq!(fields_of(line, &columns("n")).unwrap().text, Field::Null);
        let both = Columns { text: "b".to_string(), title: Some("a".to_string()) };
        let fields = fields_of(r#"{"a": "one", "b": "two"}"#, &both).unwrap();
        assert_eq!((bytes(&fields.title), bytes(&fields.text)), (b"one".as_slice(), b"two".as_slice()));
    }

    #[test]
    fn what_python_writes_for_no_number_is_null_outside_of_strings() {
        assert_eq!(without_nan(r#"{"NaN": "-Infinity \" NaN", "n": -1}"#), None);
        let line = r#"{"a": NaN, "b": [-Infinity, Infinity], "text": "NaN \\"}"#;
        let expected = r#"{"a": null, "b": [null, null], "text": "NaN \\"}"#;
        assert_eq!(without_nan(line).unwrap(), expected);
        assert_eq!(without_nan("{\"a\": NaN, \"b").unwrap(), "{\"a\": null, \"b");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_looked_through(text in "[\"\\\\NaIinfty ä-]{0,30}") {
            without_nan(&text);
        }
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let fault = |line: &str| fields_of(line, &columns("text")).unwrap_err();
        let missing = fault(r#"{"title": "a", "body": 1}"#);
        assert_eq!(missing.message, "field `text` is missing");
        assert_eq!(missing.hint.unwrap(), "set `field` to one of the fields: `title`, `body`");
        assert_eq!(fault("{}").hint.unwrap(), "there are no fields at all");
        for (value, kind) in
            [("3", "a number"), ("[1]", "an array"), ("{}", "an object"), ("true", "true or false")]
        {
            assert_eq!(
                fault(&format!(r#"{{"text": {value}}}"#)).message,
                format!("field `text` is {kind}, a string is wanted")
            );
        }
        assert_eq!(
            fault(r#"{"text": "a"} {"text": "b"}"#).message,
            "is not a JSON object: trailing characters"
        );
        for twice in [r#"{"text": "a", "text": "a"}"#, r#"{"n": 1, "text": "a", "\u006e": 2}"#] {
            let name = if twice.contains('n') { "n" } else { "text" };
            let fault = fault(twice);
            assert_eq!(fault.message, format!("is not a JSON object: field `{name}` is there twice"));
            assert!(fault.column > 10, "{fault:?}");
        }
        assert_eq!(fields_of(r#"{"text": {"a": 1, "a": 2}}"#, &columns("text")).unwrap_err().column, 1);
        assert_eq!(fault(r#"["text"]"#).message, "is an array, a JSON object is wanted");
        let cut = fault(r#"{"text": "a"#);
        assert_eq!((cut.line, cut.column), (1, 11));
        let titled = Columns { title: Some("title".to_string()), ..columns("text") };
        assert_eq!(
            fields_of(r#"{"text": "a"}"#, &titled).unwrap_err().hint.unwrap(),
            "set `title_field` to one of the fields: `text`"
        );
    }

    #[test]
    fn half_a_surrogate_pair_comes_out_as_bytes_that_are_no_text() {
        let fields = fields_of(r#"{"text": "a\ud83db"}"#, &columns("text")).unwrap();
        assert!(std::str::from_utf8(bytes(&fields.text)).is_err());
    }
}
