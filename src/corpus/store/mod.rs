//! The kept text between two stages of `prepare`: parts of compressed documents, each with its tally and its
//! sketches.
//!
//! A part is three files, of which the `.json` is written last and vouches for the other two. Parts follow
//! each other without a gap, so that an interrupted pass goes on behind the last whole one; where several processes
//! were interrupted, there may be others behind a gap, which are written again. It knows no filters.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::json;

use crate::error::Problem;
use crate::fs;
use crate::quantity::MOST_ON_A_DISK;

mod reader;
mod record;
mod writer;

pub(super) use reader::PartReader;
pub use record::StoredDocument;
pub(super) use writer::PartWriter;

/// A part's tally holds twenty samples for each reason and source counts: some hundred KiB.
const ENTRY_BYTES_MAX: u64 = 64 << 20;

const COMPLETE_JSON: &str = "complete.json";

/// What stands in a part's `.json`; `T` is the tally of the pass.
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
    /// Files that its documents come from, as locations count them.
    pub(super) files: Vec<PathBuf>,
    /// What the pass counted.
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
        let path = |extension: &str| folder.join(format!("part-{number:05}.{extension}"));
        Self { documents: path("zst"), sketches: path("sketch"), entry: path("json") }
    }
}

/// A part without its tally: of these, many are held at once.
pub(super) type Part = (PartPaths, PartEntry<()>);

/// The whole parts of a folder, in order; their tallies, which are large, go to `each` one by one.
pub(super) fn whole_parts<T: DeserializeOwned>(folder: &Path, mut each: impl FnMut(T)) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    loop {
        let paths = PartPaths::new(folder, parts.len());
        if !fs::exists(&paths.entry) {
            return Ok(parts);
        }
        let text = fs::read_text_capped(&paths.entry, ENTRY_BYTES_MAX)?;
        let broken = |message: String, path: &Path| {
            let hint = format!("remove the folder `{}` to read the corpus again", folder.display());
            Problem::new(message).at(path.display()).hint(hint)
        };
        let entry: PartEntry<T> =
            serde_json::from_str(&text).map_err(|e| broken(format!("is broken: {e}"), &paths.entry))?;
        let claims =
            [("items", entry.items), ("documents", entry.documents), ("text_bytes", entry.text_bytes)];
        if let Some((name, claim)) = claims.into_iter().find(|(_, claim)| *claim > MOST_ON_A_DISK) {
            return Err(broken(format!("is broken: `{name}` is {claim}"), &paths.entry).into());
        }
        let file_bytes = fs::len_bytes(&paths.documents)?;
        if file_bytes != entry.file_bytes {
            return Err(broken(
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

/// Whether the pass that wrote into `folder` came to its end.
pub(super) fn is_complete(folder: &Path) -> bool {
    fs::exists(&folder.join(COMPLETE_JSON))
}

/// Says that no further part will come, and what was read: the hash of each file of the corpus, where it has
/// one.
pub(super) fn set_complete(folder: &Path, parts: usize, content_hashes: &[Option<String>]) -> Result<()> {
    let complete = json!({"parts": parts, "content_hashes": content_hashes});
    fs::write_bytes(&folder.join(COMPLETE_JSON), format!("{complete}\n").as_bytes())
}

/// Removes what passes wrote into `folder`, and the folder where nothing else is in it.
pub fn remove_documents(folder: &Path) -> Result<()> {
    for path in fs::list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_own = |extension: &str| {
            let number = name.strip_prefix("part-").and_then(|rest| rest.strip_suffix(extension));
            number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        };
        if name == COMPLETE_JSON || [".zst", ".sketch", ".json"].into_iter().any(is_own) {
            fs::remove_file(&path)?;
        }
    }
    if fs::exists(folder) && fs::list(folder)?.is_empty() { fs::remove_folder(folder) } else { Ok(()) }
}

/// The hashes of the files of the corpus as the pass that wrote into `folder` read them; none before its end.
pub fn content_hashes(folder: &Path) -> Result<Vec<Option<String>>> {
    let path = folder.join(COMPLETE_JSON);
    if !fs::exists(&path) {
        return Ok(Vec::new());
    }
    let text = fs::read_text_capped(&path, ENTRY_BYTES_MAX)?;
    // Those of older versions have none.
    let complete: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(serde_json::from_value(complete["content_hashes"].clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
