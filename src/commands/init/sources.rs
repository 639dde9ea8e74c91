//! The sources of a text that is named on a command line: one for each way in which plain text is cut into documents,
//! with a pattern where a shell has expanded one.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::staging;
use crate::config::CacheConfig;
use crate::config::DataConfig;
use crate::config::DocumentUnit;
use crate::config::SourceConfig;
use crate::corpus::Corpus;
use crate::fs;
use crate::recipe;

/// Fewer files than these are named one by one.
const FEWEST_OF_A_PATTERN: usize = 3;

/// The sources that `entries` make. Plain text is cut as `unit` says, or else as each entry looks.
///
/// # Errors
/// Returns an error if an entry names no file, or one that cannot be read.
pub(super) fn sources(
    entries: &[String],
    field: &str,
    unit: Option<DocumentUnit>,
) -> Result<Vec<SourceConfig>> {
    let source =
        |files: Vec<String>| SourceConfig { field: field.to_string(), ..SourceConfig::of_files(files) };
    let open = |files: Vec<String>| {
        let data = DataConfig { sources: vec![source(files)], ..DataConfig::default() };
        Corpus::open(&staging::staged(data, &CacheConfig::default())?)
    };
    // All files that are missing are one error.
    open(entries.to_vec())?;
    let entries = patterns(entries);
    let mut units: Vec<Option<DocumentUnit>> = Vec::new();
    for entry in &entries {
        let corpus = open(vec![entry.clone()])?;
        units.push(if unit.is_some() { unit } else { recipe::document_unit(corpus.files())? });
    }
    // The unit of plain text does not matter to entries without plain text.
    let first = units.iter().find_map(|unit| *unit);
    let mut sources: Vec<SourceConfig> = Vec::new();
    for (entry, unit) in entries.into_iter().zip(units) {
        let document = unit.or(first).unwrap_or(DocumentUnit::File);
        match sources.iter_mut().find(|source| source.document == document) {
            Some(source) => source.files.push(entry),
            None => sources.push(SourceConfig { document, ..source(vec![entry]) }),
        }
    }
    Ok(sources)
}

/// The entries, with `folder/*.txt` in the place of all files of a folder that have one extension.
fn patterns(entries: &[String]) -> Vec<String> {
    let mut files: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for entry in entries {
        if let Some(pattern) = pattern_of(entry) {
            files.entry(pattern).or_default().insert(PathBuf::from(entry));
        }
    }
    files.retain(|pattern, named| {
        let all = || fs::matching(pattern).map(BTreeSet::from_iter);
        named.len() >= FEWEST_OF_A_PATTERN && all().is_ok_and(|all| all == *named)
    });
    let mut written = BTreeSet::new();
    let shortened = entries.iter().filter_map(|entry| match pattern_of(entry) {
        Some(pattern) if files.contains_key(&pattern) => written.insert(pattern.clone()).then_some(pattern),
        _ => Some(entry.clone()),
    });
    shortened.collect()
}

/// The pattern that matches a file and all files of its folder with the same extension.
fn pattern_of(entry: &str) -> Option<String> {
    let path = Path::new(entry);
    if entry.contains(['*', '?', '[']) || !fs::exists(path) || fs::is_folder(path) {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    let (_, extension) = name.split_once('.')?;
    Some(entry.strip_suffix(name)?.to_string() + "*." + extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_cut_alike_are_a_source_and_a_folder_of_them_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["a.txt", "b.txt", "c.txt"] {
            std::fs::write(path(name), "one line\nand another\n").unwrap();
        }
        std::fs::write(path("book.text"), "a paragraph\n\nanother\n\nand a third\n").unwrap();
        std::fs::write(path("rows.jsonl"), "{\"body\": \"a\"}\n").unwrap();
        let entries = ["a.txt", "b.txt", "c.txt", "rows.jsonl", "book.text"].map(path);
        let found = sources(&entries, "body", None).unwrap();
        let [lines, paragraphs] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((lines.document, paragraphs.document), (DocumentUnit::Line, DocumentUnit::Paragraph));
        assert_eq!(lines.files, [path("*.txt"), path("rows.jsonl")]);
        assert_eq!(paragraphs.files, [path("book.text")]);
        assert_eq!(lines.field, "body");
        // Not all of them: each is named.
        assert_eq!(patterns(&entries[..2]), entries[..2]);
        let given = sources(&entries, "text", Some(DocumentUnit::File)).unwrap();
        assert_eq!((given.len(), given[0].document), (1, DocumentUnit::File));
    }
}
