//! Where text comes from: files, formats, what one document is.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// How a source's files are to be read; compression (.gz, .zst, .bz2, .xz) is told by the last extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// By the extension: `.jsonl`, `.ndjson`, `.json`, `.csv`, `.tsv`, `.parquet`; anything else is `text`.
    Auto,
    /// Plain text.
    Text,
    /// One JSON object a line.
    Jsonl,
    /// One JSON array of objects.
    Json,
    /// Comma-separated columns with a header line.
    Csv,
    /// Tab-separated columns with a header line.
    Tsv,
    /// Apache Parquet.
    Parquet,
}

/// What one document of a plain-text file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentUnit {
    /// The whole file.
    File,
    /// A run of lines between blank lines.
    Paragraph,
    /// A line.
    Line,
    /// What stands between `<doc ...>` and `</doc>`, as `WikiExtractor` writes it.
    DocTag,
}

/// What to do with a document that is not valid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidUtf8 {
    /// Stop with an error that names the byte.
    Fail,
    /// Put U+FFFD in the place of each invalid sequence, and count them.
    Replace,
    /// Leave the line or document out, and count it.
    Skip,
}

/// Files that are read in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// What statistics call it; by default the first of its files without folder and extensions.
    #[serde(default)]
    pub name: Option<String>,
    /// Files, folders (read with all below them), glob patterns such as `corpus/*.jsonl.zst`, or `-` for standard
    /// input; relative to the current folder.
    pub files: Vec<String>,
    /// How to read them.
    #[serde(default = "auto")]
    pub format: Format,
    /// What one document is (plain text only).
    #[serde(default = "file")]
    pub document: DocumentUnit,
    /// The JSON field or column that holds the text.
    #[serde(default = "text")]
    pub field: String,
    /// A field or column that is put before the text, on a line of its own.
    #[serde(default)]
    pub title_field: Option<String>,
    /// How often an epoch takes each document: 2 takes all twice, 0.5 half of them, another half the next time.
    #[serde(default = "one")]
    pub weight: f64,
    /// What to do with bytes that are not UTF-8.
    #[serde(default = "fail")]
    pub invalid_utf8: InvalidUtf8,
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
    /// Files that are read by their extensions, with all other keys at their defaults.
    pub fn of_files(files: Vec<String>) -> Self {
        Self { name: None, files, format: auto(), document: file(), field: text(), title_field: None, weight: one(), invalid_utf8: fail() }
    }
}
