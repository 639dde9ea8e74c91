//! The files next to a `tokenizer.json` that name the special tokens for transformers (and older readers).

use serde_json::{Map, Value, json};

use crate::tokenizer::load::NamedFile;
use crate::tokenizer::{SpecialTokens, load, prefix};

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The key that lists the inputs of a model.
pub(super) const INPUT_NAMES: &str = "model_input_names";

/// Adds `tokenizer_config.json` and `special_tokens_map.json` to `files` if they are missing. `named` are the
/// special tokens that other files name, `config` are further keys of `tokenizer_config.json`.
pub(super) fn complete(
    mut files: Vec<NamedFile>,
    special: &SpecialTokens,
    inner: &tokenizers::Tokenizer,
    named: &[(&'static str, String)],
    mut config: Map<String, Value>,
) -> Vec<NamedFile> {
    let mut roles = Map::new();
    for (role, id) in [
        ("bos_token", Some(special.cls)),
        ("eos_token", Some(special.sep)),
        ("cls_token", Some(special.cls)),
        ("sep_token", Some(special.sep)),
        ("pad_token", Some(special.pad)),
        ("unk_token", special.unk),
    ] {
        if let Some(id) = id {
            roles.insert(role.into(), inner.id_to_token(id).unwrap_or_default().into());
        }
    }
    if let Some(id) = special.mask {
        // The mask includes the space before it, as RoBERTa's does: `a <mask>` predicts ` word`, not `word`.
        let lstrip = inner.get_added_tokens_decoder().get(&id).is_some_and(|token| token.lstrip);
        let name = inner.id_to_token(id).unwrap_or_default();
        let token = json!({
            "content": name,
            "lstrip": lstrip,
            "normalized": false,
            "rstrip": false,
            "single_word": false,
        });
        roles.insert("mask_token".into(), token);
    }
    // Tokens that the class or the files name stay, for example a start and an end token that no text
    // contains.
    for (role, token) in named.iter().filter(|(role, _)| *role != "mask_token") {
        roles.insert((*role).into(), token.as_str().into());
    }
    if load::content(&files, "special_tokens_map.json").is_none() {
        files.push(("special_tokens_map.json".to_string(), pretty(&Value::Object(roles.clone()))));
    }
    if load::content(&files, TOKENIZER_CONFIG).is_none() {
        for (role, token) in &roles {
            config.insert(role.clone(), token.get("content").unwrap_or(token).clone());
        }
        files.push((TOKENIZER_CONFIG.to_string(), pretty(&Value::Object(config))));
    }
    files
}

/// The value of a key of `tokenizer_config.json`.
pub(super) fn setting(files: &[NamedFile], key: &str) -> Option<Value> {
    settings(files).remove(key)
}

/// `files` with this `value` of `key` in `tokenizer_config.json`.
pub(super) fn with_setting(files: Vec<NamedFile>, key: &str, value: impl Into<Value>) -> Vec<NamedFile> {
    with_settings(files, Map::from_iter([(key.to_string(), value.into())]))
}

/// `files` with all of `new` in `tokenizer_config.json`.
pub(super) fn with_settings(files: Vec<NamedFile>, new: Map<String, Value>) -> Vec<NamedFile> {
    let mut settings = settings(&files);
    settings.extend(new);
    with(files, TOKENIZER_CONFIG, &Value::Object(settings))
}

/// `files` with this file, replacing another one of the same name.
pub(super) fn with(mut files: Vec<NamedFile>, name: &str, json: &Value) -> Vec<NamedFile> {
    files.retain(|(other, _)| other != name);
    files.push((name.to_string(), pretty(json)));
    files
}

/// `files` without `key` in `tokenizer_config.json`.
pub(super) fn without_setting(files: Vec<NamedFile>, key: &str) -> Vec<NamedFile> {
    let mut settings = settings(&files);
    if settings.shift_remove(key).is_none() {
        return files;
    }
    with(files, TOKENIZER_CONFIG, &Value::Object(settings))
}

/// The settings by which some classes and versions of transformers override tokenizer.json, with the values
/// that override nothing.
pub(super) fn settings_of(json: &Value) -> Map<String, Value> {
    let words = &json["pre_tokenizer"];
    let letters = &json["normalizer"];
    let mut settings = Map::new();
    if words["type"] == "ByteLevel" {
        settings.insert(prefix::KEY.into(), words[prefix::KEY].clone());
    }
    if letters["type"] == "BertNormalizer" {
        for (key, own) in [
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ] {
            settings.insert(key.into(), letters[own].clone());
        }
    }
    settings
}

/// The general class under the name that transformers 4 knows as well, if the files have its name of
/// transformers 5.
pub(super) fn class_of_both(files: &[NamedFile]) -> Option<(String, Value)> {
    let key = "tokenizer_class";
    let is_new = setting(files, key).is_some_and(|name| name == "TokenizersBackend");
    is_new.then(|| (key.to_string(), "PreTrainedTokenizerFast".into()))
}

/// The inputs that transformers passes to a model.
pub(super) fn input_names(has_token_types: bool) -> Value {
    if has_token_types {
        json!(["input_ids", "token_type_ids", "attention_mask"])
    } else {
        json!(["input_ids", "attention_mask"])
    }
}

/// The keys of `tokenizer_config.json`. A file that is not an object means nothing to a reader, so nothing is
/// lost if it is ignored.
fn settings(files: &[NamedFile]) -> Map<String, Value> {
    let bytes = load::content(files, TOKENIZER_CONFIG);
    bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// Indented JSON that ends with a newline.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
