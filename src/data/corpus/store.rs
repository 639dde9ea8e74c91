//! Stores the kept text between two stages of `prepare`: parts of compressed documents, each with its tally
//! and its sketches.
//!
//! A part is three files; the `.json` is written last and certifies the other two. Parts are numbered without
//! a gap, so that an interrupted pass resumes after the last whole one; if several processes were
//! interrupted, parts after a gap may exist, and are written again. No module here depends on filters.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use base::error::Problem;
use base::fs;
use base::quantity::MOST_ON_A_DISK;

mod reader;
mod record;
mod writer;

pub(super) use reader::PartReader;
pub use record::StoredDocument;
pub(super) use writer::PartWriter;

/// Limit on reading a part's `.json`: its tally has twenty samples for each reason and source, some hundred
/// KiB.
const ENTRY_BYTES_MAX: u64 = 64 << 20;

const COMPLETE_JSON: &str = "complete.json";

/// Content of a part's `.json`; `T` is the tally of the pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartEntry<T> {
    /// Items of the corpus that this part accounts for, kept or not.
    pub(super) items: u64,
    /// Documents in it.
    pub(super) documents: u64,
    /// UTF-8 bytes of their text.
    pub(super) text_bytes: u64,
    /// Length of its compressed file.
    pub(super) file_bytes: u64,
    /// Files that its documents come from; a stored document refers to them by index.
    pub(super) files: Vec<PathBuf>,
    /// Counts of the pass.
    pub(super) tally: T,
}

/// The paths of one part.
#[derive(Debug, Clone)]
pub(super) struct PartPaths {
    pub(super) documents: PathBuf,
    pub(super) sketches: PathBuf,
    pub(super) entry: PathBuf,
}

impl PartPaths {
    pub(super) fn new(folder: &Path, number: usize) -> Self {
        let [documents, sketches, entry] =
            ["zst", "sketch", "json"].map(|extension| folder.join(format!("part-{number:05}.{extension}")));
        Self { documents, sketches, entry }
    }
}

/// A part without its tally, since many of these are in memory at the same time.
pub(super) type Part = (PartPaths, PartEntry<()>);

/// Returns the whole parts of a folder, in order; passes their tallies, which are large, to `each` one by
/// one.
pub(super) fn whole_parts<T: DeserializeOwned>(folder: &Path, mut each: impl FnMut(T)) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    loop {
        let paths = PartPaths::new(folder, parts.len());
        if !fs::exists(&paths.entry) {
            return Ok(parts);
        }
        let text = fs::read_text_capped(&paths.entry, ENTRY_BYTES_MAX)?;
        let entry: PartEntry<T> = serde_json::from_str(&text)
            .map_err(|e| broken(folder, format!("is broken: {e}"), &paths.entry))?;
        let claims =
            [("items", entry.items), ("documents", entry.documents), ("text_bytes", entry.text_bytes)];
        if let Some((name, claim)) = claims.into_iter().find(|(_, claim)| *claim > MOST_ON_A_DISK) {
            return Err(broken(folder, format!("is broken: `{name}` is {claim}"), &paths.entry).into());
        }
        let file_bytes = fs::len_bytes(&paths.documents)?;
        if file_bytes != entry.file_bytes {
            return Err(broken(
                folder,
                format!("has {file_bytes} bytes, {} are wanted: it is cut", entry.file_bytes),
                &paths.documents,
            )
            .into());
        }
        let PartEntry { items, documents, text_bytes, file_bytes, files, tally } = entry;
        each(tally);
        parts.push((paths, PartEntry { items, documents, text_bytes, file_bytes, files, tally: () }));
    }
}

fn broken(folder: &Path, message: String, path: &Path) -> Problem {
    let hint = format!("remove the folder `{}` to read the corpus again", folder.display());
    Problem::new(message).at(path.display()).hint(hint)
}

/// True if the pass that wrote into `folder` was completed.
pub(super) fn is_complete(folder: &Path) -> bool {
    fs::exists(&folder.join(COMPLETE_JSON))
}

/// Marks the pass as completed, and stores the number of parts and the hash of each file of the corpus that
/// has one.
pub(super) fn set_complete(folder: &Path, parts: usize, content_hashes: &[Option<String>]) -> Result<()> {
    let complete = json!({"parts": parts, "content_hashes": content_hashes});
    fs::write_bytes(&folder.join(COMPLETE_JSON), format!("{complete}\n").as_bytes())
}

/// Removes the files that passes wrote into `folder`, and the folder if it is empty then.
pub fn remove_documents(folder: &Path) -> Result<()> {
    for path in fs::list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == COMPLETE_JSON || is_part(&name) {
            fs::remove_file(&path)?;
        }
    }
    if fs::exists(folder) && fs::list(folder)?.is_empty() { fs::remove_folder(folder) } else { Ok(()) }
}

/// True for the name of a file of a part, such as `part-00000.zst`.
fn is_part(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("part-") else { return false };
    [".zst", ".sketch", ".json"]
        .into_iter()
        .filter_map(|extension| rest.strip_suffix(extension))
        .any(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the hashes of the corpus files as read by the pass that wrote into `folder`; empty before the pass
/// is complete.
pub fn content_hashes(folder: &Path) -> Result<Vec<Option<String>>> {
    let path = folder.join(COMPLETE_JSON);
    if !fs::exists(&path) {
        return Ok(Vec::new());
    }
    let text = fs::read_text_capped(&path, ENTRY_BYTES_MAX)?;
    // Older versions wrote no hashes.
    let complete: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(serde_json::from_value(complete["content_hashes"].clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
