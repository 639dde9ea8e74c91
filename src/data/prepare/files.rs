//! Checks if the files of the corpus still have the content that was read, by their records in the settings.
//!
//! Length and modification time catch nearly every change at no cost. A file with another modification time
//! is hashed as a whole and compared with the recorded hash, so that a copy with the same content is
//! accepted.

use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use serde_json::Value;

use crate::corpus::Corpus;
use base::fs;

/// Key in the settings: the version of a file, as [`version`] returns it.
pub(super) const MODIFIED: &str = "modified";
/// Key in the settings: the hash of a whole file, taken while it was read.
const CONTENT: &str = "content";

/// Returns a string that changes when a file is rewritten: its modification time, or the version of an object
/// in a bucket.
pub(super) fn version(path: &Path) -> Result<Option<String>> {
    if stores::is_distant(path) {
        // The cache stores each version under its own name, and updates the modification time on each use.
        let name = fs::canonical(path).file_name().map(|name| name.to_string_lossy().into_owned());
        return Ok(name);
    }
    let modified = fs::modified(path)?.duration_since(UNIX_EPOCH).ok();
    Ok(modified.map(|since| format!("{}.{:09}", since.as_secs(), since.subsec_nanos())))
}

/// Removes the keys that do not describe the content of the files: modification time and hash.
pub(super) fn forget(settings: &mut Value) {
    for file in settings["files"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        file.remove(MODIFIED);
        file.remove(CONTENT);
    }
}

/// Records the hash of each file that was read; files without a hash stay as they are.
pub(super) fn record(settings: &mut Value, content_hashes: &[Option<String>]) {
    let files = settings["files"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    for (file, hash) in files.zip(content_hashes) {
        if let Some(hash) = hash {
            file.insert(CONTENT.to_string(), hash.clone().into());
        }
    }
}

/// Returns the recorded hash of each file.
pub(super) fn recorded(settings: &Value) -> Vec<Option<String>> {
    let files = settings["files"].as_array().into_iter().flatten();
    files.map(|file| file.get(CONTENT).and_then(Value::as_str).map(str::to_string)).collect()
}

/// Result of comparing files that have another modification time than the recorded one.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Files with other content, as parts of an error message.
    pub(super) differences: Vec<String>,
    /// True if files have another modification time but the same content.
    pub(super) has_copies: bool,
}

/// Compares the content of files whose path, length and samples are those of `stored`, but whose modification
/// time is another one. All other differences are left to the comparison of settings; files without a
/// recorded time are skipped.
pub(super) fn compare(stored: &Value, wanted: &Value, corpus: &Corpus) -> Result<Compared> {
    let old = files_of(stored);
    let new = files_of(wanted);
    let mut compared = Compared::default();
    if old.len() != new.len() {
        return Ok(compared);
    }
    for ((old, new), file) in old.iter().zip(&new).zip(corpus.files()) {
        if ["path", "bytes", "sample"].iter().any(|key| old.get(key) != new.get(key))
            || old.get(MODIFIED) == new.get(MODIFIED)
            || old.get(MODIFIED).is_none()
        {
            continue;
        }
        let path = file.path.display();
        match old.get(CONTENT).and_then(Value::as_str) {
            Some(content) if fs::content_hash(&file.path)? == content => compared.has_copies = true,
            Some(_) => compared.differences.push(format!("`{path}` has another content")),
            // An object in a bucket with the same samples is accepted: it has a version, but no modification
            // time.
            None if stores::is_distant(&file.path) => {}
            None => {
                compared
                    .differences
                    .push(format!("`{path}` was written anew before all of it had been read"));
            }
        }
    }
    Ok(compared)
}

fn files_of(settings: &Value) -> Vec<Value> {
    settings["files"].as_array().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use config::{DataConfig, SourceConfig};

    #[test]
    fn a_change_is_found_and_a_copy_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "one text").unwrap();
        let name = path.to_str().unwrap();
        let source = SourceConfig::of_files(vec![name.to_string()]);
        let corpus = Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() }).unwrap();
        let mut old = settings(name, "1");
        let new = settings(name, "2");
        assert!(differences(&old, &old, &corpus).is_empty());
        assert!(
            differences(&old, &new, &corpus)[0]
                .contains("a.txt` was written anew before all of it had been read")
        );
        record(&mut old, &[Some(fs::content_hash(&path).unwrap())]);
        let copies = compare(&old, &new, &corpus).unwrap();
        assert!(copies.differences.is_empty() && copies.has_copies);
        std::fs::write(&path, "two text").unwrap();
        assert!(differences(&old, &new, &corpus)[0].contains("a.txt` has another content"));
        let without = json!({"files": [{"path": name, "bytes": 8, "sample": "x"}]});
        assert!(differences(&without, &new, &corpus).is_empty(), "older versions put down no time");
        forget(&mut old);
        assert_eq!(old, without);
    }

    fn differences(old: &Value, new: &Value, corpus: &Corpus) -> Vec<String> {
        compare(old, new, corpus).unwrap().differences
    }

    fn settings(path: &str, modified: &str) -> Value {
        json!({"files": [{"path": path, "bytes": 8, "sample": "x", "modified": modified}]})
    }
}
