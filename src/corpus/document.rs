//! What passes through the corpus: a document, and the reasons why one does not get through.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a document starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file as it was named or found.
    pub path: Arc<Path>,
    /// Line of the decompressed text, from 1; of a parquet file, the row.
    pub line: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// A piece of text that stands on its own: never empty, at most `data.max_document_bytes` long, lines end in
/// `\n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The text.
    pub text: String,
    /// Where it starts.
    pub location: Location,
    /// Index of its source in the configuration.
    pub source: usize,
    /// Whether it is the first piece of a document that was cut because of its length.
    pub was_cut: bool,
    /// Invalid sequences of bytes that were replaced in it.
    pub replaced: u32,
}

/// Why something is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The name of the rule, as `report.json` counts it: `too_short`, `language`, `exact_duplicate`, ...
    pub reason: &'static str,
    /// What was found in this case, such as `41 % alphabetic, at least 60 % are wanted`; may be empty.
    pub detail: String,
}

/// Something that was left out while reading, such as a line over the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Where it starts.
    pub location: Location,
    /// Index of its source in the configuration.
    pub source: usize,
    /// Its length in bytes, as far as it is known.
    pub bytes: u64,
    /// Why.
    pub rejection: Rejection,
    /// Its beginning, at most 500 bytes, for the report.
    pub excerpt: String,
}

/// What reading gives, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A document.
    Document(Document),
    /// Something that is left out, and counted.
    Rejected(Rejected),
}

/// A document after cleaning and filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The cleaned text; of a rejected document, as far as cleaning had come.
    pub text: String,
    /// Why it is left out; `None` keeps it.
    pub rejection: Option<Rejection>,
    /// Its language as an ISO 639-3 code, where languages are looked at.
    pub language: Option<&'static str>,
    /// What cleaning and line filters did, by name: a count of lines taken out, or 1 for a step that changed
    /// something.
    pub changes: Vec<(&'static str, u64)>,
}
