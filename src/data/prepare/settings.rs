//! Settings that tokenizer and shards depend on, as JSON under the keys of the configuration, and the
//! differences between two of them.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::corpus::{Corpus, SourceFile};
use crate::prepare::files;
use crate::tokenizer::Tokenizer;
use base::{fs, secrets};
use config::PretrainConfig;

/// Keys of `data` that determine the content of the shards.
const DECISIVE: [&str; 9] = [
    "sources",
    "cleaning",
    "filters",
    "deduplication",
    "contamination",
    "validation_fraction",
    "shard_tokens",
    "max_document_bytes",
    "max_line_bytes",
];

/// Returns everything that determines the bytes of tokenizer and shards. Files are described by name, length
/// and a hash of samples of their content; [`files`] compares their modification times. The weights of
/// sources are left out, since they are applied while training.
pub(super) fn from_config(
    config: &PretrainConfig,
    corpus: Option<&Corpus>,
    given: Option<&Tokenizer>,
) -> Result<Value> {
    let tokenizer = if let Some(tokenizer) = given {
        given_tokenizer(tokenizer)
    } else {
        let mut table = config::saved(&config.tokenizer);
        // `compare_with` affects the report only. Folders prepared before `add_prefix_space` existed have no
        // such key, which means that it was off.
        if let Some(table) = table.as_object_mut() {
            table.retain(|key, value| match key.as_str() {
                "compare_with" => false,
                "add_prefix_space" => *value == true,
                _ => true,
            });
        }
        table["family"] = json!(config.model().map(|model| model.family));
        table
    };
    let mut data = config::saved(&config.data);
    let sources = data["sources"].as_array_mut().into_iter().flatten();
    for table in sources.filter_map(Value::as_object_mut) {
        table.remove("weight");
        // Older versions had no such key and always failed on a bad record.
        if table.get("on_bad_record").is_some_and(|value| value == "fail") {
            table.remove("on_bad_record");
        }
    }
    // The memory limit of the search for duplicates does not change its result.
    data["deduplication"]
        .as_object_mut()
        .into_iter()
        .for_each(|table| table.retain(|key, _| key != "memory_bytes"));
    let table = data.as_object_mut().into_iter();
    table.for_each(|table| table.retain(|key, _| DECISIVE.contains(&key.as_str())));
    let lists =
        lists_of(config).map(|path| Ok((config::portable(path), json!(fs::sample_hash(Path::new(path))?))));
    let lists: serde_json::Map<String, Value> = lists.collect::<Result<_>>()?;
    let files = corpus
        .map(|corpus| corpus.files().iter().map(identity).collect::<Result<Vec<Value>>>())
        .transpose()?;
    Ok(json!({"version": 2, "data": data, "tokenizer": tokenizer, "lists": lists, "files": files}))
}

/// The settings of a tokenizer that is not trained here.
pub(super) fn given_tokenizer(tokenizer: &Tokenizer) -> Value {
    json!({"path": format!("a tokenizer with fingerprint {}", tokenizer.fingerprint())})
}

/// Returns the files, other than the corpus, that determine which documents are left out.
fn lists_of(config: &PretrainConfig) -> impl Iterator<Item = &String> {
    let filters = &config.data.filters;
    let lists = [&filters.gopher.stop_word_files, &filters.words.files, &filters.perplexity.reference_files];
    lists.into_iter().chain([&config.data.contamination.files]).flatten()
}

fn identity(file: &SourceFile) -> Result<Value> {
    // Standard input cannot be read twice.
    let sample = if file.is_standard_input() { None } else { fs::sample_hash(&file.path)? };
    let path = config::portable(&file.path.to_string_lossy());
    let mut identity = json!({"path": path, "bytes": file.size_bytes, "sample": sample});
    if !file.is_standard_input()
        && let Some(modified) = files::version(&file.path)?
    {
        identity[files::MODIFIED] = json!(modified);
    }
    Ok(identity)
}

/// Returns the SHA-256 of settings in hexadecimal. It depends on the content of the files, but not on their
/// modification times.
pub(super) fn sha256(settings: &Value) -> String {
    let mut settings = settings.clone();
    files::forget(&mut settings);
    fs::sha256_of(&[settings.to_string().as_bytes()])
}

/// Returns a description of each value that differs: its dotted name, the old and the new value.
pub(super) fn differences(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found
}

fn compare(name: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(missing) {
                compare(&dotted(name, key), &old[key], &new[key], found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for index in 0..a.len() {
                compare(&dotted(name, &index.to_string()), &a[index], &b[index], found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            found.push(format!("`{name}` had {} entries, now has {}", a.len(), b.len()));
        }
        // A value that is a secret now need not have been one when the settings were written, for example a
        // folder `test`, now that the user of a server is called `test`.
        (a, b) if a == b || secrets::masked(&a.to_string()) == secrets::masked(&b.to_string()) => {}
        (a, b) => found.push(format!("`{name}` was {a}, now is {b}")),
    }
}

fn dotted(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_string() } else { format!("{name}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_the_name_of_a_secret_is_the_same_path() {
        let old = settings("data/planted-9c2e/a.txt");
        let new = settings("data/${SETTINGS_TEST_KEY}/a.txt");
        assert_eq!(differences(&old, &new).len(), 1);
        secrets::hold("SETTINGS_TEST_KEY", "planted-9c2e");
        assert!(differences(&old, &new).is_empty());
        assert_eq!(differences(&old, &settings("data/${SETTINGS_TEST_KEY}/b.txt")).len(), 1, "another path");
    }

    fn settings(path: &str) -> Value {
        json!({"files": [{"path": path, "bytes": 7}]})
    }
}
