//! Serialization of keys that take a value or the word `auto`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The word that lets the program choose a value.
pub(super) const AUTO: &str = "auto";

/// Writes a value, or `auto` for `None`.
pub(super) fn serialize<T: Serialize, S: Serializer>(
    value: Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(serializer),
        None => serializer.serialize_str(AUTO),
    }
}

/// Reads a value, or `None` for `auto`. The error for any other word says that it is neither `wanted` nor
/// `auto`.
pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    wanted: &str,
) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written<T> {
        Value(T),
        Word(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Value(value) => Ok(Some(value)),
        Written::Word(word) if word == AUTO => Ok(None),
        Written::Word(word) => Err(D::Error::custom(format!("`{word}` is neither {wanted} nor `{AUTO}`"))),
    }
}
