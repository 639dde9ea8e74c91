//! Converts one value to JSON of the wanted type, or explains why that is not possible.
//!
//! Strict: texts are not converted to numbers nor numbers to texts. Only whole numbers may have a unit.

use serde_json::Value as Json;

use crate::foreign;
use crate::shape::{Shape, quoted};
use crate::suggest::closest;
use crate::tree::{Filled, Value, shortened};
use base::quantity;
use base::quantity::QuantityError;

/// The end of a message that starts with the key, and the hint.
pub(super) type Refusal = (String, String);

/// Returns a scalar as JSON, or the end of the message and the hint.
pub(super) fn scalar(value: &Value, shape: &Shape, path: &str) -> Result<Json, Refusal> {
    if let Value::Filled(filled) = value {
        return filled_scalar(filled, shape, path);
    }
    match (shape, value) {
        (Shape::Text, Value::Text(text)) => Ok(Json::from(text.as_str())),
        (Shape::Bool | Shape::BoolOr { .. }, Value::Bool(value)) => Ok(Json::from(*value)),
        (Shape::Number, Value::Integer(value)) => Ok(Json::from(*value as f64)),
        (Shape::Number, Value::Float(value)) if value.is_finite() => Ok(Json::from(*value)),
        (Shape::Number, Value::Float(_)) => wrong(value, shape, "infinity and `nan` mean nothing here"),
        (Shape::Integer { min, max }, Value::Integer(value)) => whole(*value, *min, *max),
        (Shape::Integer { min, max }, Value::Float(value)) if value.fract() == 0.0 && value.abs() < 1e15 => {
            whole(*value as i128, *min, *max)
        }
        (Shape::Integer { min, max }, Value::Text(text)) => match quantity_of(path, text) {
            Ok(value) => whole(value.into(), *min, *max),
            Err(_) if path.ends_with("_bytes") => {
                wrong(value, shape, "write digits, or a unit such as `64MB` (10^6) or `2GiB` (2^30)")
            }
            Err(_) => wrong(value, shape, "write digits, or a unit such as `5k`, `2.5M` or `10B` (10^9)"),
        },
        (
            Shape::IntegerOr { word, .. } | Shape::BoolOr { word } | Shape::WordOrNumbers { word },
            Value::Text(text),
        ) if text == word => Ok(Json::from(text.as_str())),
        (Shape::IntegerOr { word, .. }, Value::Text(text)) if quantity_of(path, text).is_err() => {
            wrong(value, shape, &format!("write digits, or `{word}`"))
        }
        (Shape::IntegerOr { min, max, .. }, _) => {
            scalar(value, &Shape::Integer { min: *min, max: *max }, path)
        }
        (Shape::Choice(names), Value::Text(text)) if names.contains(text) => Ok(Json::from(text.as_str())),
        (Shape::Choice(names), Value::Text(text)) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let hint = foreign::value_hint(path, text)
                .map(str::to_string)
                .or_else(|| closest(text, &names).map(|name| format!("did you mean `{name}`?")))
                .unwrap_or_else(|| format!("choose one of {}", quoted(&names)));
            Err((format!("cannot be `{}`", shortened(text)), hint))
        }
        (_, Value::Null) => {
            let hint = "give it a value, or remove the key to take its default";
            Err(("has no value".to_string(), hint.to_string()))
        }
        (Shape::Text, Value::Integer(_) | Value::Float(_) | Value::Bool(_)) => {
            wrong(value, shape, "put it in quotes")
        }
        (Shape::Number, Value::Text(text)) if text.trim().parse::<f64>().is_ok() => {
            wrong(value, shape, "remove the quotes")
        }
        (Shape::Bool | Shape::BoolOr { .. }, Value::Text(text))
            if ["yes", "on", "no", "off"].contains(&text.to_lowercase().as_str()) =>
        {
            wrong(value, shape, "YAML 1.2 spells them `true` and `false`")
        }
        (Shape::Number, _) => wrong(value, shape, "write it like `0.1` or `5.0e-5`"),
        (Shape::Integer { .. }, Value::Float(_)) => wrong(value, shape, "write it in digits only"),
        (Shape::WordOrNumbers { word }, _) => {
            wrong(value, shape, &format!("write `{word}`, or `{{name: 2.0, other: 1.0}}`"))
        }
        _ => wrong(value, shape, &format!("write {}", shape.wanted())),
    }
}

fn wrong(value: &Value, shape: &Shape, hint: &str) -> Result<Json, Refusal> {
    Err((format!("wants {}, not {}", shape.wanted(), value.described()), hint.to_string()))
}

/// Converts a text that contained variables: to a text if one is wanted, else to the value that it would have
/// in the file.
fn filled_scalar(filled: &Filled, shape: &Shape, path: &str) -> Result<Json, Refusal> {
    let Filled { text, written, is_secret } = filled;
    if *shape == Shape::Text {
        return Ok(Json::from(text.as_str()));
    }
    scalar(&filled.value(), shape, path).map_err(|(message, hint)| {
        let written = shortened(written);
        if *is_secret {
            let message = format!("wants {}, which `{written}` does not stand for", shape.wanted());
            return (message, "its value is not shown, for its name is that of a secret".to_string());
        }
        (format!("{message} (`{written}`)"), hint)
    })
}

/// Parses a number with a unit. `10B` is ten bytes for keys that count bytes, and ten billion for others.
fn quantity_of(path: &str, text: &str) -> Result<u64, QuantityError> {
    if path.ends_with("_bytes") { quantity::parse_bytes(text) } else { quantity::parse_count(text) }
}

fn whole(value: i128, min: i128, max: i128) -> Result<Json, Refusal> {
    let in_range = (min..=max).contains(&value);
    match (in_range, i64::try_from(value), u64::try_from(value)) {
        (true, Ok(value), _) => Ok(Json::from(value)),
        (true, _, Ok(value)) => Ok(Json::from(value)),
        _ if value < min => {
            Err((format!("is {value}, it must be at least {min}"), "look for a stray minus sign".to_string()))
        }
        _ => Err((format!("is {value}, it can be at most {max}"), "look for stray digits".to_string())),
    }
}
