//! Makes the files of a loaded tokenizer consistent with each other, so that every reader of the written
//! files gets the same ids.

use serde_json::{Map, Value};

use crate::tokenizer::files::pretty;
use crate::tokenizer::load;
use crate::tokenizer::load::{NamedFile, TOKENIZER_JSON};
use crate::tokenizer::published::class::Class;
use crate::tokenizer::published::settings::TOKENIZER_CONFIG;

const ADDED_TOKENS: &str = "added_tokens.json";

/// Corrections to the files that were read.
pub(super) struct Corrections<'a> {
    pub(super) class: Class,
    /// The complete tokenizer.json; `None` if the existing file is complete.
    pub(super) json: Option<&'a Value>,
    /// `padding` and `truncation` of the tokenizer.json.
    pub(super) kept: [Value; 2],
    /// Keys of tokenizer_config.json.
    pub(super) keys: Map<String, Value>,
}

/// `files` that agree with each other.
pub(super) fn correct(mut files: Vec<NamedFile>, corrections: Corrections<'_>) -> Vec<NamedFile> {
    let Corrections { class, json, kept, mut keys } = corrections;
    let bytes = load::content(&files, TOKENIZER_CONFIG);
    let has_config = bytes.is_some();
    let before: Map<String, Value> =
        bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
    let is_named =
        keys.get("tokenizer_class").and_then(Value::as_str).is_some_and(|name| class.is_named(name));
    if !is_named {
        keys.insert("tokenizer_class".to_string(), class.name().into());
    }
    if let Some(json) = json {
        if let Some(decoder) = keys.get_mut("added_tokens_decoder") {
            *decoder = Value::Object(by_id(json));
        }
        if load::content(&files, ADDED_TOKENS).is_some() {
            replace(&mut files, ADDED_TOKENS, pretty(&Value::Object(by_name(json))));
        }
        let mut json = json.clone();
        let [padding, truncation] = kept;
        json["padding"] = padding;
        json["truncation"] = truncation;
        replace(&mut files, TOKENIZER_JSON, json.to_string().into_bytes());
    }
    if has_config && before != keys {
        replace(&mut files, TOKENIZER_CONFIG, pretty(&Value::Object(keys)));
    }
    files
}

fn replace(files: &mut [NamedFile], name: &str, bytes: Vec<u8>) {
    if let Some(file) = files.iter_mut().find(|(other, _)| other == name) {
        file.1 = bytes;
    }
}

/// Added tokens by id, without the id in each token.
fn by_id(json: &Value) -> Map<String, Value> {
    let tokens = json["added_tokens"].as_array().into_iter().flatten();
    let entries = tokens.map(|token| {
        let mut flags = token.as_object().cloned().unwrap_or_default();
        let id = flags.remove("id").unwrap_or_default();
        (id.to_string(), Value::Object(flags))
    });
    entries.collect()
}

fn by_name(json: &Value) -> Map<String, Value> {
    let tokens = json["added_tokens"].as_array().into_iter().flatten();
    let ordinary = tokens.filter(|token| token["special"] != true);
    ordinary
        .map(|token| (token["content"].as_str().unwrap_or_default().to_string(), token["id"].clone()))
        .collect()
}

/// Settings for a missing tokenizer_config.json, from which `class` builds the same tokenizer again.
pub(super) fn config(
    class: Class,
    json: &Value,
    gives_token_types: bool,
    truncates_left: bool,
) -> Map<String, Value> {
    let mut config = Map::new();
    config.insert("tokenizer_class".to_string(), class.name().into());
    if truncates_left {
        config.insert("truncation_side".to_string(), "left".into());
    }
    let letters = &json["normalizer"];
    let words = &json["pre_tokenizer"];
    if letters["type"] == "BertNormalizer" {
        let switches = [
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ];
        for (key, own) in switches {
            config.insert(key.to_string(), letters[own].clone());
        }
    }
    if words["type"] == "ByteLevel" {
        config.insert("add_prefix_space".to_string(), words["add_prefix_space"].clone());
    }
    let mut inputs = vec!["input_ids", "attention_mask"];
    if gives_token_types {
        inputs.insert(1, "token_type_ids");
    }
    config.insert("model_input_names".to_string(), inputs.into());
    config
}

/// Returns a note that lists the parts of a tokenizer.json that were overridden by other files.
pub(super) fn note_changes(class: Class, changed: &[&str]) -> Option<String> {
    let mut parts = changed.iter().map(|part| format!("`{part}`")).collect::<Vec<_>>();
    parts.dedup();
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        format!(
            "tokenizer.json: {parts} give way to the files beside it, as {} of transformers reads them",
            class.name()
        )
    })
}
