//! What shards depend on, as JSON under the names of the configuration, and what differs between two of these.

use serde_json::Value;
use serde_json::json;

use crate::config::PretrainConfig;
use crate::corpus::Corpus;
use crate::fs;
use crate::tokenizer::Tokenizer;

/// Everything that decides the bytes of tokenizer and shards. Files count with name and length.
pub(super) fn of(config: &PretrainConfig, corpus: Option<&Corpus>, given: Option<&Tokenizer>) -> Value {
    let tokenizer = match given {
        Some(tokenizer) => json!({"path": format!("a tokenizer with fingerprint {}", tokenizer.fingerprint())}),
        None => json!({
            "path": null,
            "family": config.model().map(|model| model.family),
            "vocab_size": config.tokenizer.vocab_size,
            "min_frequency": config.tokenizer.min_frequency,
            "train_bytes": config.tokenizer.train_bytes,
        }),
    };
    let files = |corpus: &Corpus| -> Vec<Value> {
        corpus.files().iter().map(|file| json!({"path": file.path.to_string_lossy(), "bytes": file.size_bytes})).collect()
    };
    json!({
        "version": 1,
        "data": {
            "sources": config.data.sources,
            "validation_fraction": config.data.validation_fraction,
            "shard_tokens": config.data.shard_tokens,
            "max_document_bytes": config.data.max_document_bytes,
        },
        "tokenizer": tokenizer,
        "files": corpus.map(files),
    })
}

/// SHA-256 of settings in hexadecimal.
pub(super) fn sha256(settings: &Value) -> String {
    fs::sha256_of(&[settings.to_string().as_bytes()])
}

/// Each value that differs: its dotted name, the old and the new value.
pub(super) fn differences(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found
}

fn compare(name: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    let child = |key: &str| if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(missing) {
                compare(&child(key), &old[key], &new[key], found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for index in 0..a.len() {
                compare(&child(&index.to_string()), &a[index], &b[index], found);
            }
        }
        (Value::Array(a), Value::Array(b)) => found.push(format!("`{name}` had {} entries, now has {}", a.len(), b.len())),
        (a, b) if a == b => {}
        (a, b) => found.push(format!("`{name}` was {a}, now is {b}")),
    }
}
