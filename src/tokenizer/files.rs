//! The files around a `tokenizer.json` that tell transformers (and older readers) what its special tokens
//! are.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::tokenizer::SpecialTokens;
use crate::tokenizer::load;
use crate::tokenizer::load::NamedFile;

/// `files`, and `tokenizer_config.json` and `special_tokens_map.json` where they are missing.
pub(super) fn complete(
    mut files: Vec<NamedFile>,
    special: &SpecialTokens,
    inner: &tokenizers::Tokenizer,
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
    if load::content(&files, "tokenizer_config.json").is_none() {
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
        for (role, token) in &roles {
            config.insert(role.clone(), token.get("content").unwrap_or(token).clone());
        }
        files.push(("tokenizer_config.json".to_string(), pretty(&Value::Object(config))));
    }
    files
}

/// JSON as people read it, ending in a newline.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
