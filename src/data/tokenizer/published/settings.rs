//! The settings of tokenizer_config.json, checked key by key.

use serde_json::{Map, Value};

use crate::tokenizer::load;
use crate::tokenizer::load::NamedFile;
use base::error::Problem;

pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Lengths from this one on mean "no limit" in transformers (its `LARGE_INTEGER`).
const NO_LIMIT: f64 = 1e20;

/// The keys of one file, for errors that name both.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings<'a> {
    keys: &'a Map<String, Value>,
    place: &'a str,
}

/// The object in the file called `name`; empty if there is no such file.
pub(in crate::tokenizer) fn object(
    files: &[NamedFile],
    name: &str,
    place: &str,
) -> Result<Map<String, Value>, Problem> {
    let Some(bytes) = load::content(files, name) else { return Ok(Map::new()) };
    let message = match serde_json::from_slice(bytes) {
        Ok(Value::Object(keys)) => return Ok(keys),
        Ok(_) => return Err(Problem::new(format!("its {name} is not a JSON object")).at(place)),
        Err(error) => format!("its {name} is not JSON: {error}"),
    };
    Err(Problem::new(message).at(place).hint("is the file whole?"))
}

impl<'a> Settings<'a> {
    pub(super) fn new(keys: &'a Map<String, Value>, place: &'a str) -> Self {
        Self { keys, place }
    }

    fn wrong(&self, key: &str, wanted: &str) -> Problem {
        let value = &self.keys[key];
        Problem::new(format!("`{key}` of {TOKENIZER_CONFIG} is {value}, {wanted} is wanted")).at(self.place)
    }

    /// A switch, or `absent` if the key is missing.
    pub(super) fn flag(&self, key: &str, absent: bool) -> Result<bool, Problem> {
        match self.keys.get(key) {
            None => Ok(absent),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, "`true` or `false`")),
        }
    }

    /// A switch that may be missing or null.
    pub(super) fn open_flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.flag(key, false).map(Some),
        }
    }

    /// A non-negative number, or `absent` if the key is missing.
    pub(super) fn number(&self, key: &str, absent: u64) -> Result<u64, Problem> {
        match self.keys.get(key) {
            None => Ok(absent),
            Some(value) => value.as_u64().ok_or_else(|| self.wrong(key, "a number")),
        }
    }

    /// The longest sequence in tokens; `None` if there is no limit.
    pub(super) fn model_max_length(&self) -> Result<Option<usize>, Problem> {
        let key = if self.keys.contains_key("model_max_length") { "model_max_length" } else { "max_len" };
        let length = match self.keys.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().parse::<f64>().ok(),
            Some(value) => value.as_f64(),
        };
        let whole = length.filter(|length| *length >= 0.0 && length.fract() == 0.0);
        let length = whole.ok_or_else(|| self.wrong(key, "a whole number of tokens"))?;
        Ok((0.0 < length && length < NO_LIMIT).then_some(length as usize))
    }

    /// Returns true if texts that are too long lose their beginning; `absent` is the value of tokenizer.json.
    pub(super) fn truncates_left(&self, absent: bool) -> Result<bool, Problem> {
        match self.keys.get("truncation_side").map(Value::as_str) {
            None => Ok(absent),
            Some(Some("left")) => Ok(true),
            Some(Some("right")) => Ok(false),
            Some(_) => Err(self.wrong("truncation_side", "`left` or `right`")),
        }
    }

    /// Returns true if models get token types; `absent` is the result if the key is missing.
    pub(super) fn gives_token_types(&self, absent: bool) -> Result<bool, Problem> {
        let Some(value) = self.keys.get("model_input_names") else { return Ok(absent) };
        let names = value.as_array().filter(|names| names.iter().all(Value::is_string));
        let names = names.ok_or_else(|| self.wrong("model_input_names", "a list of names"))?;
        Ok(names.iter().any(|name| name == "token_type_ids"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the callers write the value in place")]
    fn with<T>(keys: Value, read: impl Fn(Settings<'_>) -> Result<T, Problem>) -> Result<T, String> {
        read(Settings::new(keys.as_object().unwrap(), "here")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_longest_sequence_has_many_forms() {
        for (value, wanted) in [
            (json!(512), Some(512)),
            (json!(512.0), Some(512)),
            (json!("512"), Some(512)),
            (json!(1e30), None),
            (json!("1e30"), None),
            (json!(null), None),
            (json!(0), None),
            (serde_json::from_str("1000000000000000019884624838656").unwrap(), None),
            (json!(1_000_000_000_000_000_000_000_f64), None),
        ] {
            assert_eq!(
                with(json!({"model_max_length": value}), |s| s.model_max_length()),
                Ok(wanted),
                "{value}"
            );
        }
        for value in [json!("long"), json!(true), json!(-1), json!(12.5), json!([512])] {
            let error = with(json!({"model_max_length": value}), |s| s.model_max_length()).unwrap_err();
            assert!(error.contains("`model_max_length` of tokenizer_config.json is "), "{value}: {error}");
        }
        assert_eq!(with(json!({"max_len": 128}), |s| s.model_max_length()), Ok(Some(128)));
    }

    #[test]
    fn values_of_another_type_are_refused_with_their_key() {
        let error = with(json!({"do_lower_case": "no"}), |s| s.flag("do_lower_case", true)).unwrap_err();
        assert!(error.contains("`do_lower_case` of tokenizer_config.json is \"no\""), "{error}");
        assert!(with(json!({"truncation_side": "middle"}), |s| s.truncates_left(false)).is_err());
        assert!(with(json!({"model_input_names": "input_ids"}), |s| s.gives_token_types(false)).is_err());
        assert_eq!(with(json!({"strip_accents": null}), |s| s.open_flag("strip_accents")), Ok(None));
    }
}
