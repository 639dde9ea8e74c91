//! The data sources for the files on the command line of `init`: one source for each unit of documents. Files
//! that a shell has expanded from a pattern become a pattern again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::commands::staging;
use crate::config::{CacheConfig, DataConfig, DocumentUnit, OnBadRecord, SourceConfig};
use crate::corpus::{Corpus, SourceFile};
use crate::fs::TextEncoding;
use crate::tasks::labelled::other_texts;
use crate::{fs, recipe, stores};

/// Least number of files of a folder that are written as a pattern; fewer are listed one by one.
const FEWEST_OF_A_PATTERN: usize = 3;

/// Returns the sources for `entries`: files, folders or patterns, with the other keys of `template`. Plain
/// text is cut into documents by `unit`, or by a guess for each entry.
///
/// # Errors
/// Returns an error if an entry names no file, or one that cannot be read.
pub(super) fn sources(
    entries: &[String],
    template: &SourceConfig,
    unit: Option<DocumentUnit>,
) -> Result<Vec<SourceConfig>> {
    // All files are opened together first, so that one error lists all missing files.
    open(entries.to_vec(), template)?;
    let mut parts: Vec<(String, Option<DocumentUnit>)> = Vec::new();
    for entry in patterns(entries) {
        let corpus = open(vec![entry.clone()], template)?;
        match unit {
            Some(_) => parts.push((entry, unit)),
            None => parts.extend(parts_of(entry, corpus.files())?),
        }
    }
    // Entries without plain text have no unit of their own, and join the source of the first unit.
    let first = parts.iter().find_map(|(_, unit)| *unit);
    let mut sources: Vec<SourceConfig> = Vec::new();
    for (entry, unit) in parts {
        let document = unit.or(first).unwrap_or(DocumentUnit::File);
        match sources.iter_mut().find(|source| source.document == document) {
            Some(source) => source.files.push(entry),
            None => sources.push(SourceConfig { document, files: vec![entry], ..template.clone() }),
        }
    }
    Ok(sources)
}

/// Most plain texts of a folder that are looked at one by one.
const MOST_LOOKED_AT: usize = 64;

/// Returns an entry with the unit of its documents. If the plain texts of a folder have different units,
/// returns its files instead, each with its own.
fn parts_of(entry: String, files: &[SourceFile]) -> Result<Vec<(String, Option<DocumentUnit>)>> {
    let unit = recipe::document_unit(files)?;
    let plain = files.iter().filter(|file| file.is_plain_text()).count();
    if unit == Some(DocumentUnit::File) || !(2..=MOST_LOOKED_AT).contains(&plain) || stores::is_url(&entry) {
        return Ok(vec![(entry, unit)]);
    }
    let mut parts = Vec::new();
    for file in files {
        let unit = recipe::document_unit(std::slice::from_ref(file))?;
        parts.push((file.path.display().to_string(), unit));
    }
    let differ = parts.iter().any(|(_, of_file)| of_file.is_some() && *of_file != unit);
    Ok(if differ { parts } else { vec![(entry, unit)] })
}

/// Returns a note for each source whose first file of rows holds texts in other fields than that of `template`.
pub(super) fn notes_on_fields(corpus: &Corpus, template: &SourceConfig) -> Vec<String> {
    let mut notes = Vec::new();
    let mut seen = BTreeSet::new();
    for file in corpus.files() {
        if seen.contains(&file.source) {
            continue;
        }
        // An error of the file is reported when all of it is read.
        let others = other_texts(&file.path, &template.field, template.encoding);
        let others = others.unwrap_or_default().unwrap_or_default();
        let Some((first, _)) = others.first() else { continue };
        seen.insert(file.source);
        let shares: Vec<String> =
            others.iter().map(|(name, share)| format!("`{name}` ({:.0} % of it)", 100.0 * share)).collect();
        notes.push(format!(
            "`{}` holds text in other fields, too: {}; `title_field: {first}` in its source puts that before the text",
            file.path.display(),
            shares.join(", ")
        ));
    }
    notes
}

/// A source without files, which leaves out what cannot be read: the sample counts it.
pub(super) fn template(field: &str, encoding: Option<TextEncoding>) -> SourceConfig {
    let on_bad_record = OnBadRecord::Skip;
    SourceConfig { field: field.to_string(), encoding, on_bad_record, ..SourceConfig::of_files(Vec::new()) }
}

/// Opens files as a corpus. URLs are downloaded first.
fn open(files: Vec<String>, template: &SourceConfig) -> Result<Corpus> {
    let source = SourceConfig { files, ..template.clone() };
    let data = DataConfig { sources: vec![source], ..DataConfig::default() };
    Corpus::open(&staging::staged(data, &CacheConfig::default())?)
}

/// Returns the entries, with a pattern such as `folder/*.txt` instead of all files of a folder with that
/// extension.
fn patterns(entries: &[String]) -> Vec<String> {
    let mut files: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for entry in entries {
        if let Some(pattern) = pattern_of(entry) {
            files.entry(pattern).or_default().insert(PathBuf::from(entry));
        }
    }
    files.retain(|pattern, named| {
        named.len() >= FEWEST_OF_A_PATTERN
            && fs::matching(pattern).is_ok_and(|all| BTreeSet::from_iter(all) == *named)
    });
    let mut written = BTreeSet::new();
    let shortened = entries.iter().filter_map(|entry| match pattern_of(entry) {
        Some(pattern) if files.contains_key(&pattern) => written.insert(pattern.clone()).then_some(pattern),
        _ => Some(entry.clone()),
    });
    shortened.collect()
}

/// Returns the pattern for a file and all files of its folder with the same extension.
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
    fn files_of_one_unit_are_a_source_and_a_folder_of_them_is_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a.txt", "b.txt", "c.txt", "rows.jsonl", "book.text", "*.txt"];
        let paths = names.map(|name| folder.path().join(name).display().to_string());
        let [first, second, third, rows, book, pattern] = &paths;
        for path in [first, second, third] {
            std::fs::write(path, "one line\nand another\n").unwrap();
        }
        std::fs::write(book, "a paragraph\n\nanother\n\nand a third\n").unwrap();
        std::fs::write(rows, "{\"body\": \"a\"}\n").unwrap();
        let entries = &paths[..5];
        let found = sources(entries, &template("body", None), None).unwrap();
        let [lines, paragraphs] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((lines.document, paragraphs.document), (DocumentUnit::Line, DocumentUnit::Paragraph));
        assert_eq!(lines.files, [pattern.as_str(), rows]);
        assert_eq!(paragraphs.files, [book.as_str()]);
        assert_eq!(lines.field, "body");
        // Some files of a folder are listed one by one.
        assert_eq!(patterns(&entries[..2]), entries[..2]);
        // So do the files of a folder.
        let folder = folder.path().display().to_string();
        let found = sources(&[folder], &template("body", None), None).unwrap();
        let [lines, paragraphs] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((lines.document, paragraphs.document), (DocumentUnit::Line, DocumentUnit::Paragraph));
        assert_eq!(lines.files, [first, second, third, rows].map(String::as_str));
        assert_eq!(paragraphs.files, [book.as_str()]);
        let given = sources(entries, &template("text", None), Some(DocumentUnit::File)).unwrap();
        assert_eq!((given.len(), given[0].document), (1, DocumentUnit::File));
    }
}
