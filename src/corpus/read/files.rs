//! Finds the files of the sources and decides how each is read; it opens none.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;

use crate::config::DocumentUnit;
use crate::config::Format;
use crate::config::SourceConfig;
use crate::error::Problem;
use crate::fs;

/// How one file becomes documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Plain text.
    Text(DocumentUnit),
    /// One JSON object a line; the text stands in this field.
    Jsonl(String),
}

/// A file of the corpus.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// As it was named or found.
    pub path: Arc<Path>,
    /// Its length on the disk.
    pub size_bytes: u64,
    /// Index of its source in the configuration.
    pub source: usize,
    pub(super) reading: Reading,
}

/// The files of all sources in a fixed order; a file that two patterns match is read twice.
pub(super) fn find(sources: &[SourceConfig]) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        for pattern in &source.files {
            for path in matches(pattern)? {
                let reading = reading_of(source, &path);
                files.push(SourceFile { size_bytes: fs::len_bytes(&path)?, path: path.into(), source: index, reading });
            }
        }
    }
    if files.is_empty() {
        return Err(Problem::usage("names no file").at("data.sources").hint("add a source: `- files: [corpus/*.txt]`").into());
    }
    Ok(files)
}

/// What each source is called: its name, else the first of its files without folder and extensions.
pub(super) fn names(sources: &[SourceConfig]) -> Vec<String> {
    let name = |source: &SourceConfig| {
        let first = source.files.first().map(Path::new).and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let stem = first.unwrap_or_default().split('.').next().unwrap_or_default().to_string();
        source.name.clone().unwrap_or(stem)
    };
    sources.iter().map(name).collect()
}

fn matches(pattern: &str) -> Result<Vec<PathBuf>> {
    // A name that exists is meant literally, whatever brackets it contains.
    if fs::exists(Path::new(pattern)) {
        if fs::is_folder(Path::new(pattern)) {
            return Err(Problem::usage(format!("`{pattern}` is a folder"))
                .at("data.sources")
                .hint(format!("write `{}/*`", pattern.trim_end_matches('/')))
                .into());
        }
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let found = glob::glob(pattern).map_err(|e| Problem::usage(format!("`{pattern}` is not a pattern: {}", e.msg)).at("data.sources"))?;
    let mut paths = Vec::new();
    for path in found {
        let path = path.map_err(|e| Problem::new(format!("cannot be read: {}", e.error())).at(e.path().display()))?;
        if !fs::is_folder(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Problem::usage(format!("no file matches `{pattern}`"))
            .at("data.sources")
            .hint("paths are relative to the folder in which the program was started")
            .into());
    }
    paths.sort();
    Ok(paths)
}

fn reading_of(source: &SourceConfig, path: &Path) -> Reading {
    let jsonl = || Reading::Jsonl(source.field.clone());
    match source.format {
        Format::Text => Reading::Text(source.document),
        Format::Jsonl | Format::Json | Format::Csv | Format::Tsv | Format::Parquet => jsonl(),
        Format::Auto => {
            let plain = fs::without_compression(path);
            match plain.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
                Some("jsonl" | "ndjson" | "json") => jsonl(),
                _ => Reading::Text(source.document),
            }
        }
    }
}
