//! The files around a `tokenizer.json` that tell transformers (and older readers) what its special tokens
//! are.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::tokenizer::SpecialTokens;
use crate::tokenizer::load;
use crate::tokenizer::load::NamedFile;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// `files`, and `tokenizer_config.json` and `special_tokens_map.json` where they are missing; `config` is what
/// the former says besides.
pub(super) fn complete(
    mut files: Vec<NamedFile>,
    special: &SpecialTokens,
    inner: &tokenizers::Tokenizer,
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

/// `files` with a `tokenizer_config.json` that tells this `value` of `key`.
pub(super) fn with_setting(mut files: Vec<NamedFile>, key: &str, value: impl Into<Value>) -> Vec<NamedFile> {
    // A file that is no object tells a reader nothing, so that nothing is lost with it.
    let mut config: Map<String, Value> = load::content(&files, TOKENIZER_CONFIG)
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default();
    config.insert(key.into(), value.into());
    files.retain(|(name, _)| name != TOKENIZER_CONFIG);
    files.push((TOKENIZER_CONFIG.to_string(), pretty(&Value::Object(config))));
    files
}

/// `files` whose `tokenizer_config.json` says nothing of `key`.
pub(super) fn without_setting(mut files: Vec<NamedFile>, key: &str) -> Vec<NamedFile> {
    let config: Option<Map<String, Value>> =
        load::content(&files, TOKENIZER_CONFIG).and_then(|bytes| serde_json::from_slice(bytes).ok());
    if let Some(mut config) = config.filter(|config| config.contains_key(key)) {
        config.shift_remove(key);
        files.retain(|(name, _)| name != TOKENIZER_CONFIG);
        files.push((TOKENIZER_CONFIG.to_string(), pretty(&Value::Object(config))));
    }
    files
}

/// JSON as people read it, ending in a newline.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
