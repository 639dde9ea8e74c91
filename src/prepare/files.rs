//! The files of the corpus as settings name them: whether they are still what was read.
//!
//! Length and time of writing tell of nearly every change and cost nothing. Where the time differs, all of
//! the file is hashed and compared with what was read, so that a copy counts as what it is a copy of.

use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use serde_json::Value;

use crate::corpus::Corpus;
use crate::fs;
use crate::stores;

/// When a file was written, in the settings.
pub(super) const MODIFIED: &str = "modified";
/// The hash of all of a file, as it was read.
const CONTENT: &str = "content";

/// The part that changes when a file is written: its time, or the version of an object in a bucket.
pub(super) fn version(path: &Path) -> Result<Option<String>> {
    if stores::is_distant(path) {
        // The cache keeps each version under a name of its own, and marks it as written when it is used.
        let name = fs::canonical(path).file_name().map(|name| name.to_string_lossy().into_owned());
        return Ok(name);
    }
    let modified = fs::modified(path)?.duration_since(UNIX_EPOCH).ok();
    Ok(modified.map(|since| format!("{}.{:09}", since.as_secs(), since.subsec_nanos())))
}

/// Takes out what is no part of the content of the files.
pub(super) fn forget(settings: &mut Value) {
    for file in settings["files"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        file.remove(MODIFIED);
        file.remove(CONTENT);
    }
}

/// Puts down what was read of each file.
pub(super) fn record(settings: &mut Value, content_hashes: &[Option<String>]) {
    let files = settings["files"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    for (file, hash) in files.zip(content_hashes) {
        if let Some(hash) = hash {
            file.insert(CONTENT.to_string(), hash.clone().into());
        }
    }
}

/// The record of each file.
pub(super) fn recorded(settings: &Value) -> Vec<Option<String>> {
    let files = settings["files"].as_array().into_iter().flatten();
    files.map(|file| file.get(CONTENT).and_then(Value::as_str).map(str::to_string)).collect()
}

/// The result of comparing files that were written at another time.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// The difference, for the error.
    pub(super) differences: Vec<String>,
    /// True if files were written at another time and have the same content.
    pub(super) has_copies: bool,
}

/// Compares the content of the files that were written at another time than those of `stored` with the same
/// path, length and samples; all else is for the comparison of settings to see. What has no time is not
/// looked at.
pub(super) fn compare(stored: &Value, wanted: &Value, corpus: &Corpus) -> Result<Compared> {
    let list = |settings: &Value| settings["files"].as_array().cloned().unwrap_or_default();
    let (old, new) = (list(stored), list(wanted));
    let mut compared = Compared::default();
    if old.len() != new.len() {
        return Ok(compared);
    }
    for ((old, new), file) in old.iter().zip(&new).zip(corpus.files()) {
        let same = |key: &str| old.get(key) == new.get(key);
        if !same("path") || !same("bytes") || !same("sample") || same(MODIFIED) || old.get(MODIFIED).is_none()
        {
            continue;
        }
        let path = file.path.display();
        match old.get(CONTENT).and_then(Value::as_str) {
            Some(content) if fs::content_hash(&file.path)? == content => compared.has_copies = true,
            Some(_) => compared.differences.push(format!("`{path}` has another content")),
            // The samples are the same, and there is no time that an object had.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::DataConfig;
    use crate::config::SourceConfig;

    #[test]
    fn a_change_is_seen_and_a_copy_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "one text").unwrap();
        let name = path.to_str().unwrap();
        let source = SourceConfig::of_files(vec![name.to_string()]);
        let corpus = Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() }).unwrap();
        let settings = |modified: &str| json!({"files": [{"path": name, "bytes": 8, "sample": "x", "modified": modified}]});
        let (mut old, new) = (settings("1"), settings("2"));
        let differences = |old: &Value, new: &Value| compare(old, new, &corpus).unwrap().differences;
        assert!(differences(&old, &old).is_empty());
        assert!(
            differences(&old, &new)[0].contains("a.txt` was written anew before all of it had been read")
        );
        record(&mut old, &[Some(fs::content_hash(&path).unwrap())]);
        let copies = compare(&old, &new, &corpus).unwrap();
        assert!(copies.differences.is_empty() && copies.has_copies);
        std::fs::write(&path, "two text").unwrap();
        assert!(differences(&old, &new)[0].contains("a.txt` has another content"));
        let without = json!({"files": [{"path": name, "bytes": 8, "sample": "x"}]});
        assert!(differences(&without, &new).is_empty(), "older versions put down no time");
        forget(&mut old);
        assert_eq!(old, without);
    }
}
