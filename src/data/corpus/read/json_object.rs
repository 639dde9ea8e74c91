//! Reads the text and the title of one JSON object, without building the rest of it.
//!
//! Strings are read as bytes: half of a surrogate pair (`"\ud83d"`), which Python writes without an error
//! although it is not valid UTF-8, is treated like any other invalid byte.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::corpus::read::assembly::{Assembly, Origin};
use crate::corpus::read::reading::Columns;
use crate::records::json::without_nan;
use crate::records::nested;
use crate::records::utf8::Decoded;
use base::error::Problem;

/// Most fields that an error lists.
const LISTED_FIELDS: usize = 12;

/// Reads the document in the object `json`, which begins in column `column` (from 1) of its line.
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

/// Decodes the string of a field, empty for null; returns `None` if the object was left out because of the
/// field.
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

/// Error in an object, with its position there (line and column from 1).
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    message: String,
    hint: Option<String>,
    line: u64,
    column: u64,
}

/// Value of a field.
#[derive(Debug, Default, PartialEq, Eq)]
enum Field<'a> {
    #[default]
    Missing,
    Null,
    Text(Cow<'a, [u8]>),
}

/// Values of the wanted fields.
#[derive(Debug, Default)]
struct Fields<'a> {
    text: Field<'a>,
    title: Field<'a>,
}

/// Reads the strings in the fields that `columns` names. A repeated name is an error, since it would be
/// ambiguous which value is meant.
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
        Ok(fields) => within_objects(json, fields, columns),
        Err(e) => Err(explain(json, columns, Some(&e))),
    }
}

/// Reads the missing ones of `fields` where their names are paths into objects: `doc.text` is the field
/// `text` of the object `doc`.
fn within_objects<'a>(json: &'a str, mut fields: Fields<'a>, columns: &Columns) -> Result<Fields<'a>, Fault> {
    let names = std::iter::once(&columns.text).chain(&columns.title);
    let mut object = None;
    for (name, found) in names.zip([&mut fields.text, &mut fields.title]) {
        if *found != Field::Missing {
            continue;
        }
        if object.is_none() && name.contains('.') {
            object = serde_json::from_str::<Map<String, Value>>(json).ok();
        }
        match object.as_ref().and_then(|object| nested::field(object, name)) {
            Some(Value::String(text)) => *found = Field::Text(Cow::Owned(text.clone().into_bytes())),
            Some(Value::Null) => *found = Field::Null,
            _ => return Err(explain(json, columns, None)),
        }
    }
    Ok(fields)
}

/// Examines an object whose fields could not be read, and returns the reason.
fn explain(json: &str, columns: &Columns, error: Option<&serde_json::Error>) -> Fault {
    let object: Map<String, Value> = match (serde_json::from_str(json), error) {
        (Ok(Value::Object(object)), _) => object,
        (Ok(other), _) => {
            return Fault::at_start(format!("is {}, a JSON object is wanted", kind_of(&other)), None);
        }
        (Err(_), Some(e)) => return Fault::not_an_object(e),
        (Err(e), None) => return Fault::not_an_object(&e),
    };
    for (key, name) in [("field", Some(&columns.text)), ("title_field", columns.title.as_ref())] {
        let Some(name) = name else { continue };
        match nested::field(&object, name) {
            Some(Value::String(_) | Value::Null) => {}
            Some(other) => {
                let inner = other.as_object().map(|inner| nested::paths_within(name, inner));
                let hint = inner.filter(|paths| !paths.is_empty());
                return Fault::at_start(
                    format!("field `{name}` is {}, a string is wanted", kind_of(other)),
                    hint.map(|paths| known_names(key, "fields within it", paths.iter().map(String::as_str))),
                );
            }
            None => {
                let nested = nested::nested_paths(&object);
                let plain = object.iter().filter(|(_, value)| !value.is_object()).map(|(name, _)| name);
                let names = plain.chain(&nested).map(String::as_str);
                return Fault::at_start(
                    format!("field `{name}` is missing"),
                    Some(known_names(key, "fields", names)),
                );
            }
        }
    }
    error.map_or_else(
        || Fault::at_start("is not a JSON object that can be read".to_string(), None),
        Fault::not_an_object,
    )
}

impl Fault {
    fn at_start(message: String, hint: Option<String>) -> Self {
        Self { message, hint, line: 1, column: 1 }
    }

    fn not_an_object(e: &serde_json::Error) -> Self {
        let text = e.to_string();
        let message = format!("is not a JSON object: {}", text.split(" at line ").next().unwrap_or_default());
        let hint =
            Some("in its source, `on_bad_record: skip` leaves such records out and counts them".to_string());
        Self { message, hint, line: e.line().max(1) as u64, column: e.column().max(1) as u64 }
    }
}

/// Returns the hint that lists the existing names if a name is missing; `key` is the configuration key to
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
        let mut found = Fields::default();
        let mut seen = BTreeSet::new();
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

/// Deserializes a string as bytes, or null.
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
    fn a_name_may_be_a_path_into_objects() {
        let line = r#"{"id": 1, "doc": {"head": "one", "body": {"text": "two"}}, "n": {"t": null}}"#;
        let both = Columns { text: "doc.body.text".to_string(), title: Some("doc.head".to_string()) };
        let fields = fields_of(line, &both).unwrap();
        assert_eq!((bytes(&fields.title), bytes(&fields.text)), (b"one".as_slice(), b"two".as_slice()));
        assert_eq!(fields_of(line, &columns("n.t")).unwrap().text, Field::Null);
        let exact = r#"{"a": {"b": "no"}, "a.b": "yes"}"#;
        assert_eq!(bytes(&fields_of(exact, &columns("a.b")).unwrap().text), b"yes");
        let inner = fields_of(line, &columns("doc")).unwrap_err();
        assert_eq!(inner.message, "field `doc` is an object, a string is wanted");
        assert_eq!(
            inner.hint.unwrap(),
            "set `field` to one of the fields within it: `doc.head`, `doc.body.text`"
        );
        let missing = fields_of(line, &columns("doc.tail")).unwrap_err();
        assert_eq!(
            missing.hint.unwrap(),
            "set `field` to one of the fields: `id`, `doc.head`, `doc.body.text`, `n.t`"
        );
    }

    #[test]
    fn faults_name_the_field_and_the_reason() {
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

    fn fault(line: &str) -> Fault {
        fields_of(line, &columns("text")).unwrap_err()
    }

    #[test]
    fn half_a_surrogate_pair_becomes_bytes_that_are_not_utf8() {
        let fields = fields_of(r#"{"text": "a\ud83db"}"#, &columns("text")).unwrap();
        assert!(std::str::from_utf8(bytes(&fields.text)).is_err());
    }
}
