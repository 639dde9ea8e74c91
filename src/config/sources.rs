//! Sources of text: files, their formats, and the unit of a document.

use std::path::{Component, Path};

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use base::fs::TextEncoding;

/// Largest weight of a source; a larger one is more likely a typing error.
pub(crate) const WEIGHT_MAX: f64 = 1000.0;

/// How a source's files are to be read. First bytes come before names: what is compressed (gzip, zstd, bzip2,
/// xz) is decompressed, tar archives and web archives (WARC) are read member by member, Parquet is read as
/// Parquet, UTF-16 and UTF-32 are decoded, whatever the format says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// By the extension: `.jsonl`, `.ndjson`, `.json`, `.csv`, `.tsv`, `.parquet`; anything else, and
    /// standard input, is `text`.
    Auto,
    /// Plain text.
    Text,
    /// One JSON object a line.
    Jsonl,
    /// One JSON array of objects, or objects one after the other.
    Json,
    /// Comma-separated columns with a header line; fields may be quoted.
    Csv,
    /// Tab-separated columns with a header line; a quote is a character like any other.
    Tsv,
    /// Apache Parquet.
    Parquet,
}

/// The unit of a plain-text file that is one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentUnit {
    /// The whole file.
    File,
    /// A run of lines between blank lines.
    Paragraph,
    /// A line.
    Line,
    /// The text between `<doc ...>` and `</doc>`, as `WikiExtractor` writes it.
    DocTag,
}

/// Action on a document that is not valid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidUtf8 {
    /// Stop with an error that names the byte.
    Fail,
    /// Put U+FFFD in the place of each invalid sequence, and count them.
    Replace,
    /// Leave it out, and count it: the line, the JSON object, the row; where documents are paragraphs, the
    /// paragraph.
    Skip,
}

/// Action on a record that cannot be read: a line that is no JSON object or has no such field, a row with
/// fewer or more fields than the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum OnBadRecord {
    /// Stop with an error that names the line.
    #[default]
    Fail,
    /// Leave it out, and count it.
    Skip,
}

/// Files that are read in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Name in statistics; by default the first of its files without folder and extensions, or, if that is a
    /// pattern, its folder.
    #[serde(default)]
    pub name: Option<String>,
    /// Files, folders, glob patterns such as `corpus/*.jsonl.zst`, or `-` for standard input; relative to the
    /// current folder. Of a folder, all files in and below it are read whose extension fits `format`, also
    /// behind links; neither folders nor patterns take hidden ones. A file that several entries name is read
    /// once.
    #[schemars(inner(length(min = 1)), extend("x-path" = true))]
    pub files: Vec<String>,
    /// How to read them.
    #[serde(default = "auto")]
    pub format: Format,
    /// Unit that is one document (plain text only); of archives, the file is a member or a record.
    #[serde(default = "file")]
    pub document: DocumentUnit,
    /// The JSON field or column that holds the text; null counts as empty. `doc.text` is the field `text` of
    /// the object `doc`, unless a field has that whole name.
    #[schemars(length(min = 1), example = &"text")]
    #[serde(default = "text")]
    pub field: String,
    /// A field or column that is put before the text, on a line of its own; it may be null or empty, but not
    /// missing. Members of a tar archive have the field `name`, records of a WARC file their headers, such as
    /// `WARC-Target-URI`.
    #[schemars(length(min = 1), example = &"title")]
    #[serde(default)]
    pub title_field: Option<String>,
    /// The character between the columns of CSV; when absent a comma, or what the header has instead of one:
    /// `;`, a tab or `|`.
    #[serde(default)]
    pub separator: Option<String>,
    /// How often an epoch takes each document: 2 takes all twice, 0.5 half of them, another half the next
    /// time.
    #[schemars(range(min = 0.0, max = WEIGHT_MAX), example = 1)]
    #[serde(default = "one")]
    pub weight: f64,
    /// Encoding of the text, such as `windows-1252`, by a name of the WHATWG's encoding standard; UTF-8, or
    /// what a byte-order mark says, when absent. Parquet and WARC files need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<TextEncoding>,
    /// Action on bytes that are not UTF-8, or not of `encoding`.
    #[serde(default = "fail")]
    pub invalid_utf8: InvalidUtf8,
    /// Action on a record that cannot be read.
    #[serde(default)]
    pub on_bad_record: OnBadRecord,
}

fn auto() -> Format {
    Format::Auto
}
fn file() -> DocumentUnit {
    DocumentUnit::File
}
fn text() -> String {
    "text".to_string()
}
fn one() -> f64 {
    1.0
}
fn fail() -> InvalidUtf8 {
    InvalidUtf8::Fail
}

impl SourceConfig {
    /// Returns a source of these files, with all other keys at their defaults.
    pub fn of_files(files: Vec<String>) -> Self {
        Self {
            name: None,
            files,
            format: auto(),
            document: file(),
            field: text(),
            title_field: None,
            separator: None,
            weight: one(),
            encoding: None,
            invalid_utf8: fail(),
            on_bad_record: OnBadRecord::default(),
        }
    }

    /// Returns the name, or else one derived from the first file.
    pub fn display_name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let first = self.files.first().map_or("", String::as_str);
        if first == "-" {
            return "stdin".to_string();
        }
        let mut parts = Path::new(first).components().rev().filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        });
        parts
            .find(|name| !name.contains(['*', '?', '[']))
            .map(|name| name.split('.').next().unwrap_or_default().to_string())
            .filter(|stem| !stem.is_empty())
            .unwrap_or_else(|| "corpus".to_string())
    }
}
