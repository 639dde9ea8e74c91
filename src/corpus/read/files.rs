//! Finds the files of the sources and decides how each is read.
//!
//! It looks into none of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;

use crate::config::DocumentUnit;
use crate::config::Format;
use crate::config::InvalidUtf8;
use crate::config::SourceConfig;
use crate::corpus::read::table::Dialect;
use crate::error::Problem;
use crate::fs;
use crate::fs::TextFile;

/// The entry of `files` that means standard input; a file of this name is written `./-`.
const STANDARD_INPUT: &str = "-";

/// How one file becomes documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Plain text.
    Text(DocumentUnit),
    /// One JSON object a line.
    Jsonl(Columns),
    /// A JSON array of objects, or objects one after the other.
    Json(Columns),
    /// A table with a header.
    Table(Dialect, Columns),
    /// Apache Parquet.
    Parquet(Columns),
}

/// The fields or columns that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) text: String,
    pub(super) title: Option<String>,
}

/// A file of the corpus.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// As it was named or found; `standard input` is not a file.
    pub path: Arc<Path>,
    /// Its length on the disk; 0 for standard input.
    pub size_bytes: u64,
    /// Index of its source in the configuration.
    pub source: usize,
    pub(super) reading: Reading,
    pub(super) invalid_utf8: InvalidUtf8,
    is_standard_input: bool,
}

impl SourceFile {
    /// Whether it is no file but standard input, which can be read only once.
    pub fn is_standard_input(&self) -> bool {
        self.is_standard_input
    }

    /// Whether it holds text and nothing else: no fields, no columns.
    pub fn is_plain_text(&self) -> bool {
        matches!(self.reading, Reading::Text(_))
    }

    pub(super) fn open(&self) -> Result<TextFile> {
        if self.is_standard_input { fs::standard_input() } else { fs::open_text(&self.path) }
    }
}

/// The files of all sources in a fixed order.
///
/// A file that several entries of one source name or match is read once, where the first of them stands; two
/// sources may read the same file, each in its own way.
pub(super) fn find(sources: &[SourceConfig]) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let mut seen = BTreeSet::new();
        for entry in &source.files {
            if entry == STANDARD_INPUT {
                files.push(standard_input(source, index, &files)?);
                continue;
            }
            for path in matches(entry, source.format)? {
                if seen.insert(fs::canonical(&path)) {
                    files.push(SourceFile {
                        size_bytes: fs::len_bytes(&path)?,
                        reading: reading_of(source, &path)?,
                        path: path.into(),
                        source: index,
                        invalid_utf8: source.invalid_utf8,
                        is_standard_input: false,
                    });
                }
            }
        }
    }
    if files.is_empty() {
        return Err(Problem::usage("names no file")
            .at("data.sources")
            .hint("add a source: `- files: [corpus/*.txt]`")
            .into());
    }
    Ok(files)
}

/// What each source is called; where the configuration leaves that open, no two the same.
pub(super) fn names(sources: &[SourceConfig]) -> Vec<String> {
    let mut taken: BTreeSet<String> = sources.iter().filter_map(|source| source.name.clone()).collect();
    let name = |source: &SourceConfig| {
        let first = source.display_name();
        if source.name.is_some() || taken.insert(first.clone()) {
            return first;
        }
        let mut numbered = (2..).map(|number| format!("{first}-{number}"));
        numbered.find(|name| taken.insert(name.clone())).unwrap_or(first)
    };
    sources.iter().map(name).collect()
}

fn standard_input(source: &SourceConfig, index: usize, before: &[SourceFile]) -> Result<SourceFile> {
    if before.iter().any(SourceFile::is_standard_input) {
        return Err(Problem::usage("standard input (`-`) is named twice, and can be read only once")
            .at("data.sources")
            .hint("name it once, or write it to a file")
            .into());
    }
    let path = Path::new("standard input");
    let reading = reading_of(source, path)?;
    if matches!(reading, Reading::Parquet(_)) {
        return Err(Problem::usage(
            "Parquet cannot be read from standard input, its index stands at the end",
        )
        .at("data.sources")
        .hint("write it to a file, and name the file")
        .into());
    }
    Ok(SourceFile {
        path: path.into(),
        size_bytes: 0,
        source: index,
        reading,
        invalid_utf8: source.invalid_utf8,
        is_standard_input: true,
    })
}

/// The files that an entry names: itself, all below it, or what matches it.
fn matches(entry: &str, format: Format) -> Result<Vec<PathBuf>> {
    // A name that exists is meant literally, whatever brackets it contains.
    let named = Path::new(entry);
    if fs::is_folder(named) {
        return below(named, format);
    }
    if fs::exists(named) {
        return Ok(vec![named.to_path_buf()]);
    }
    let found = glob::glob(entry)
        .map_err(|e| Problem::usage(format!("`{entry}` is not a pattern: {}", e.msg)).at("data.sources"))?;
    let mut paths = Vec::new();
    for path in found {
        let path =
            path.map_err(|e| Problem::new(format!("cannot be read: {}", e.error())).at(e.path().display()))?;
        if !fs::is_folder(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Problem::usage(format!("no file matches `{entry}`"))
            .at("data.sources")
            .hint("paths are relative to the folder in which the program was started")
            .into());
    }
    paths.sort();
    Ok(paths)
}

/// The files in and below a folder that the format can be: by their extensions, and where the format is
/// given, also those that have none (such as `wiki_00`).
fn below(folder: &Path, format: Format) -> Result<Vec<PathBuf>> {
    let all = fs::files_below(folder)?;
    let count = all.len();
    let fits = |path: &PathBuf| match (format, extension_of(path)) {
        (_, Some(extension)) => {
            format_of(&extension).is_some_and(|known| format == Format::Auto || format == known)
        }
        (_, None) => format != Format::Auto,
    };
    let paths: Vec<PathBuf> = all.into_iter().filter(fits).collect();
    if paths.is_empty() {
        let others = match count {
            0 => "it has no files at all".to_string(),
            1 => "the one file in it has another extension".to_string(),
            _ => format!("the {count} files in it have other extensions"),
        };
        return Err(Problem::usage(format!("folder `{}` holds no file to read: {others}", folder.display()))
            .at("data.sources")
            .hint("of a folder, .txt .text .jsonl .ndjson .json .csv .tsv .parquet are read, also .gz .zst .bz2 .xz; for others write a pattern")
            .into());
    }
    Ok(paths)
}

/// The extension below that of a compression, in lower case.
fn extension_of(path: &Path) -> Option<String> {
    fs::without_compression(path).extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase)
}

fn format_of(extension: &str) -> Option<Format> {
    match extension {
        "txt" | "text" => Some(Format::Text),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        "json" => Some(Format::Json),
        "csv" => Some(Format::Csv),
        "tsv" => Some(Format::Tsv),
        "parquet" => Some(Format::Parquet),
        _ => None,
    }
}

fn reading_of(source: &SourceConfig, path: &Path) -> Result<Reading> {
    let columns = Columns { text: source.field.clone(), title: source.title_field.clone() };
    let format = match source.format {
        Format::Auto => {
            extension_of(path).and_then(|extension| format_of(&extension)).unwrap_or(Format::Text)
        }
        given => given,
    };
    // Validation lets one ASCII character pass.
    let separator = source.separator.as_deref().and_then(|text| text.bytes().next()).unwrap_or(b',');
    Ok(match format {
        Format::Auto | Format::Text => Reading::Text(source.document),
        Format::Jsonl => Reading::Jsonl(columns),
        Format::Json => Reading::Json(columns),
        Format::Csv => Reading::Table(Dialect::Csv(separator), columns),
        Format::Tsv => Reading::Table(Dialect::Tsv, columns),
        Format::Parquet if fs::Compression::of(path) != fs::Compression::None => {
            return Err(Problem::usage("is a compressed Parquet file, which cannot be read in place")
                .at(path.display())
                .hint("decompress it; Parquet compresses its pages itself")
                .into());
        }
        Format::Parquet => Reading::Parquet(columns),
    })
}
