//! Finds the files of the sources, and decides how each is read from its first bytes and its name.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::corpus::read::reading::{Columns, Reading};
use crate::records::Dialect;
use base::error::{Class, Problem, Problems, class_of};
use base::fs;
use base::fs::{Kind, TextFile};
use config::{Format, SourceConfig};

/// Entry of `files` that means standard input; a file of this name is written `./-`.
const STANDARD_INPUT: &str = "-";

/// Limit on the first line that is read to find out if it is a JSON object.
const FIRST_LINE_BYTES: u64 = 1 << 20;

/// A file of the corpus.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path as it was configured or found; `standard input` is not a file.
    pub path: Arc<Path>,
    /// Its length on disk; 0 for standard input.
    pub size_bytes: u64,
    /// Index of its source in the configuration.
    pub source: usize,
    pub(super) reading: Reading,
    /// Configuration of its source.
    pub(super) settings: Arc<SourceConfig>,
    /// Kind of the file by its first bytes, before decompression.
    kind: Kind,
    is_standard_input: bool,
}

/// The files of a corpus, and notes about listing them.
pub(super) struct Found {
    pub(super) files: Vec<SourceFile>,
    pub(super) notes: Vec<String>,
}

/// Counts of entries that were skipped while the files of a source were listed.
#[derive(Debug, Default)]
struct Skipped {
    /// Hidden files and folders.
    hidden: u64,
    /// Pipes and devices.
    irregular: u64,
    /// Links to folders that are read already.
    repeated: u64,
    /// Files with other extensions.
    others: u64,
    /// One of these files.
    other: Option<PathBuf>,
}

impl SourceFile {
    /// True for standard input, which is not a file and can be read only once.
    pub fn is_standard_input(&self) -> bool {
        self.is_standard_input
    }

    /// True if the file is plain text, without fields or columns.
    pub fn is_plain_text(&self) -> bool {
        matches!(self.reading, Reading::Text(_))
    }

    /// Returns the JSON object in the first line of the decompressed file, if there is one.
    pub fn first_object(&self) -> Option<Map<String, Value>> {
        if self.is_standard_input {
            return None;
        }
        // A file that cannot be read is reported when its documents are read.
        let (text, _) = self.open().ok()?;
        let mut line = String::new();
        BufReader::new(text.take(FIRST_LINE_BYTES)).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// True if the decompressed file is a web archive (WARC, WET).
    pub fn is_web_archive(&self) -> bool {
        !self.is_standard_input && self.open().is_ok_and(|(_, kind)| kind == Kind::Warc)
    }

    /// Returns the kind of the file by its first bytes, before decompression; unknown for standard input.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Opens the file, decompressed, and returns the kind of its content.
    pub fn open(&self) -> Result<(TextFile, Kind)> {
        let encoding = self.settings.encoding;
        if self.is_standard_input {
            return fs::standard_input(false, encoding);
        }
        fs::open_content(&self.path, encoding)
    }
}

/// Finds the files of all sources, in a fixed order.
///
/// A file that several entries of one source name or match is read once, at the place of the first entry; two
/// sources may read the same file, each with its own settings.
pub(super) fn find(sources: &[SourceConfig]) -> Result<Found> {
    let mut files = Vec::new();
    let mut notes = Vec::new();
    let mut missing = Vec::new();
    let names = names(sources);
    for (index, source) in sources.iter().enumerate() {
        let settings = Arc::new(source.clone());
        let mut seen = BTreeSet::new();
        let mut skipped = Skipped::default();
        let first_file = files.len();
        for entry in &source.files {
            if entry == STANDARD_INPUT {
                files.push(standard_input(&settings, index, &files)?);
                continue;
            }
            // All entries without a file are reported at once.
            let paths = match matches(entry, source, &mut skipped) {
                Err(e) if class_of(&e) == Class::Usage => {
                    missing.extend(e.downcast::<Problem>());
                    continue;
                }
                paths => paths?,
            };
            for path in paths {
                check_name(&path)?;
                if seen.insert(fs::canonical(&path)) {
                    let (kind, reading) = detect(&settings, &path)?;
                    files.push(SourceFile {
                        size_bytes: fs::len_bytes(&path)?,
                        reading,
                        path: path.into(),
                        source: index,
                        settings: Arc::clone(&settings),
                        kind,
                        is_standard_input: false,
                    });
                }
            }
        }
        notes.extend(skipped.note(&names[index]));
        let first_text = files[first_file..].iter().find(|file: &&SourceFile| file.is_plain_text());
        notes.extend(first_text.and_then(|file| note_of_objects(file, &names[index])));
    }
    if !missing.is_empty() {
        return Err(Problems(missing).into());
    }
    if files.is_empty() {
        return Err(Problem::usage("names no file")
            .at("data.sources")
            .hint("add a source: `- files: [corpus/*.txt]`")
            .into());
    }
    Ok(Found { files, notes })
}

impl Skipped {
    fn note(&self, source: &str) -> Option<String> {
        let counts = [
            (self.hidden, "hidden"),
            (self.others, "files with extensions that are not read"),
            (self.irregular, "pipes and devices"),
            (self.repeated, "links to folders that are read already"),
        ];
        let listed: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what}: {count}"))
            .collect();
        let such_as =
            self.other.as_ref().map_or(String::new(), |path| format!(" (such as `{}`)", path.display()));
        (!listed.is_empty())
            .then(|| format!("source `{source}`: passed over in its folders: {}{such_as}", listed.join(", ")))
    }
}

/// Returns a note on a file that is read as plain text because of its name, though its first line is a JSON
/// object.
fn note_of_objects(file: &SourceFile, source: &str) -> Option<String> {
    if file.settings.format != Format::Auto {
        return None;
    }
    file.first_object().filter(|object| object.values().any(Value::is_string))?;
    let path = file.path.display();
    Some(format!(
        "source `{source}`: `{path}` has a JSON object in its first line, and is read as plain text, braces included: \
         with `format: jsonl` one field of each object is read"
    ))
}

/// Refuses a name that is not UTF-8, since reports and settings contain names as text.
fn check_name(path: &Path) -> Result<()> {
    if path.to_str().is_some() {
        return Ok(());
    }
    let name = path.as_os_str().as_encoded_bytes();
    let shown: String = name
        .utf8_chunks()
        .flat_map(|chunk| [chunk.valid().to_string(), chunk.invalid().escape_ascii().to_string()])
        .collect();
    Err(Problem::new("the name of this file is not UTF-8 text").at(shown).hint("rename it").into())
}

/// Returns the kind of a file by its first bytes, and how the file is read.
fn detect(source: &SourceConfig, path: &Path) -> Result<(Kind, Reading)> {
    let kind = fs::kind_of_file(path)?;
    let reading = reading_of(source, path);
    match (kind, reading) {
        (Kind::Foreign(_), _) => Err(kind.mistaken(path, "text").into()),
        (Kind::Parquet, _) => Ok((kind, Reading::Parquet(columns_of(source)))),
        (Kind::Compressed(_), Reading::Parquet(_)) => {
            Err(Problem::usage("is a compressed Parquet file, which cannot be read in place")
                .at(path.display())
                .hint("decompress it; Parquet compresses its pages itself")
                .into())
        }
        // Members of an archive are read by their own names.
        (Kind::Tar | Kind::Warc, Reading::Parquet(_)) => Ok((kind, Reading::Text(source.document))),
        (Kind::Markup(_) | Kind::Unicode(_), Reading::Parquet(_)) => {
            Err(kind.mistaken(path, "a Parquet file").into())
        }
        (kind, reading) => Ok((kind, reading)),
    }
}

/// Returns the names of the sources; those that are not configured are chosen to be unique.
pub(super) fn names(sources: &[SourceConfig]) -> Vec<String> {
    let mut taken: BTreeSet<String> = sources.iter().filter_map(|source| source.name.clone()).collect();
    let mut names = Vec::with_capacity(sources.len());
    for source in sources {
        let first = source.display_name();
        if source.name.is_some() || taken.insert(first.clone()) {
            names.push(first);
            continue;
        }
        let mut numbered = (2..).map(|number| format!("{first}-{number}"));
        let name = numbered.find(|name| taken.insert(name.clone()));
        names.push(name.unwrap_or(first));
    }
    names
}

fn standard_input(source: &Arc<SourceConfig>, index: usize, before: &[SourceFile]) -> Result<SourceFile> {
    if before.iter().any(SourceFile::is_standard_input) {
        return Err(Problem::usage("standard input (`-`) is named twice, and can be read only once")
            .at("data.sources")
            .hint("name it once, or write it to a file")
            .into());
    }
    let path = Path::new("standard input");
    let reading = reading_of(source, path);
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
        settings: Arc::clone(source),
        kind: Kind::Text,
        is_standard_input: true,
    })
}

/// Returns the files that an entry names: the file itself, all files below the folder, or all matches of the
/// pattern.
fn matches(entry: &str, source: &SourceConfig, skipped: &mut Skipped) -> Result<Vec<PathBuf>> {
    // The name of an existing file is meant literally, even if it contains brackets.
    let named = Path::new(entry);
    if fs::is_folder(named) {
        return below(named, source, skipped);
    }
    if fs::exists(named) {
        return Ok(vec![named.to_path_buf()]);
    }
    let paths = fs::matching(entry)
        .map_err(|problem| if problem.place.is_none() { problem.at("data.sources") } else { problem })?;
    if paths.is_empty() {
        return Err(Problem::usage(format!("no file matches `{entry}`"))
            .at("data.sources")
            .hint("paths are relative to the folder in which the program was started, and hidden files must be named")
            .into());
    }
    Ok(paths)
}

/// Returns the files in and below a folder that may have the format: by their extensions and, if the format
/// is configured, also those without an extension (such as `wiki_00`).
fn below(folder: &Path, source: &SourceConfig, skipped: &mut Skipped) -> Result<Vec<PathBuf>> {
    let found = fs::walk(folder)?;
    let count = found.files.len();
    let (paths, others): (Vec<PathBuf>, Vec<PathBuf>) =
        found.files.into_iter().partition(|path| is_read(source, path));
    skipped.hidden += found.hidden;
    skipped.irregular += found.irregular;
    skipped.repeated += found.repeated;
    skipped.others += others.len() as u64;
    skipped.other = skipped.other.take().or_else(|| others.into_iter().next());
    if paths.is_empty() {
        let others = match count {
            0 => "it has no files at all".to_string(),
            1 => "the one file in it has another extension".to_string(),
            _ => format!("the {count} files in it have other extensions"),
        };
        return Err(Problem::usage(format!("folder `{}` holds no file to read: {others}", folder.display()))
            .at("data.sources")
            .hint("of a folder, .txt .text .jsonl .ndjson .json .csv .tsv .parquet .tar .warc .wet are read, also .gz .zst .bz2 .xz; for others write a pattern")
            .into());
    }
    Ok(paths)
}

/// True if a file in a folder, or a member of an archive, has a name that is read.
pub(super) fn is_read(source: &SourceConfig, path: &Path) -> bool {
    let format = source.format;
    match extension_of(path) {
        Some(extension) if ARCHIVES.contains(&extension.as_str()) => true,
        Some(extension) => {
            format_of(&extension).is_some_and(|known| format == Format::Auto || format == known)
        }
        None => format != Format::Auto,
    }
}

/// Returns the extension before that of a compression, in lower case.
fn extension_of(path: &Path) -> Option<String> {
    fs::without_compression(path).extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase)
}

/// Extensions of archives, which contain files.
const ARCHIVES: [&str; 3] = ["tar", "warc", "wet"];

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

fn columns_of(source: &SourceConfig) -> Columns {
    Columns { text: source.field.clone(), title: source.title_field.clone() }
}

/// Decides by the name and the configuration how a file, or a member of an archive, is read.
pub(super) fn reading_of(source: &SourceConfig, path: &Path) -> Reading {
    let columns = columns_of(source);
    let format = match source.format {
        Format::Auto => {
            extension_of(path).and_then(|extension| format_of(&extension)).unwrap_or(Format::Text)
        }
        given => given,
    };
    // Validation accepts only a single ASCII character.
    let separator = source.separator.as_deref().and_then(|text| text.bytes().next());
    match format {
        Format::Auto | Format::Text => Reading::Text(source.document),
        Format::Jsonl => Reading::Jsonl(columns),
        Format::Json => Reading::Json(columns),
        Format::Csv => Reading::Table(Dialect::Csv(separator), columns),
        Format::Tsv => Reading::Table(Dialect::Tsv, columns),
        Format::Parquet => Reading::Parquet(columns),
    }
}
