//! The files around a `tokenizer.json` that tell transformers (and older readers) what its special tokens
//! are.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::tokenizer::SpecialTokens;
use crate::tokenizer::load;
use crate::tokenizer::load::NamedFile;
use crate::tokenizer::prefix;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The key that lists the inputs of a model.
pub(super) const INPUT_NAMES: &str = "model_input_names";

/// `files`, and `tokenizer_config.json` and `special_tokens_map.json` where they are missing; `told` are
/// the special tokens that others name, `config` is what the former says besides.
pub(super) fn complete(
    mut files: Vec<NamedFile>,
    special: &SpecialTokens,
    inner: &tokenizers::Tokenizer,
    told: &[(&'static str, String)],
    mut config: Map<String, Value>,
) -> Vec<NamedFile> {
    let name = |id: u32| inner.id_to_token(id).unwrap_or_default();
    let mut roles = Map::new();
    roles.insert("bos_token".into(), name(special.cls).into());
    roles.insert("eos_token".into(), name(special.sep).into());
    roles.insert("cls_token".into(), name(special.cls).into());
    roles.insert("sep_token".into(), name(special.sep).into());
    roles.insert("pad_token".into(), name(special.pad).into());
    if let Some(id) = special.unk {
        roles.insert("unk_token".into(), name(id).into());
    }
    if let Some(id) = special.mask {
        // The mask takes the space before it, as RoBERTa's does: `a <mask>` predicts ` word`, not `word`.
        let lstrip = inner.get_added_tokens_decoder().get(&id).is_some_and(|token| token.lstrip);
        let token = json!({"content": name(id), "lstrip": lstrip, "normalized": false, "rstrip": false, "single_word": false});
        roles.insert("mask_token".into(), token);
    }
    // What the class or the files name stays so: of a start and an end that no text shows, say.
    for (role, token) in told.iter().filter(|(role, _)| *role != "mask_token") {
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

/// `files` with a `tokenizer_config.json` that tells this `value` of `key`.
pub(super) fn with_setting(files: Vec<NamedFile>, key: &str, value: impl Into<Value>) -> Vec<NamedFile> {
    with_settings(files, Map::from_iter([(key.to_string(), value.into())]))
}

/// `files` with a `tokenizer_config.json` that tells all of `new`.
pub(super) fn with_settings(files: Vec<NamedFile>, new: Map<String, Value>) -> Vec<NamedFile> {
    let mut settings = settings(&files);
    settings.extend(new);
    with(files, TOKENIZER_CONFIG, &Value::Object(settings))
}

/// `files` with this one in the place of what had its name.
pub(super) fn with(mut files: Vec<NamedFile>, name: &str, json: &Value) -> Vec<NamedFile> {
    files.retain(|(other, _)| other != name);
    files.push((name.to_string(), pretty(json)));
    files
}

/// `files` whose `tokenizer_config.json` says nothing of `key`.
pub(super) fn without_setting(files: Vec<NamedFile>, key: &str) -> Vec<NamedFile> {
    let mut settings = settings(&files);
    if settings.shift_remove(key).is_none() {
        return files;
    }
    with(files, TOKENIZER_CONFIG, &Value::Object(settings))
}

/// The settings by which some classes and versions of transformers change what tokenizer.json does, with the
/// values that change nothing.
pub(super) fn settings_of(json: &Value) -> Map<String, Value> {
    let (words, letters) = (&json["pre_tokenizer"], &json["normalizer"]);
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

/// The general class by the name that transformers 4 knows as well, where it has the one of transformers 5.
pub(super) fn class_of_both(files: &[NamedFile]) -> Option<(String, Value)> {
    let key = "tokenizer_class";
    let is_new = setting(files, key).is_some_and(|name| name == "TokenizersBackend");
    is_new.then(|| (key.to_string(), "PreTrainedTokenizerFast".into()))
}

/// The inputs that transformers gives a model.
pub(super) fn input_names(has_token_types: bool) -> Value {
    if has_token_types {
        json!(["input_ids", "token_type_ids", "attention_mask"])
    } else {
        json!(["input_ids", "attention_mask"])
    }
}

/// `tokenizer_config.json`. A file that is no object tells a reader nothing, so that nothing is lost with it.
fn settings(files: &[NamedFile]) -> Map<String, Value> {
    let bytes = load::content(files, TOKENIZER_CONFIG);
    bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// JSON as people read it, ending in a newline.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
