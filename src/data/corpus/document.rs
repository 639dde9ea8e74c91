//! Types that pass through the corpus: documents, and the reasons to leave one out.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Place in a file at which a document starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file as it was named or found.
    pub path: Arc<Path>,
    /// Line of the decompressed text, from 1; the row in a parquet file.
    pub line: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// A text that is independent of other documents: never empty, at most `data.max_document_bytes` long, with
/// lines that end in `\n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The text.
    pub text: String,
    /// File and line at which it starts.
    pub location: Location,
    /// Index of its source in the configuration.
    pub source: usize,
    /// True for the first piece of a document that was cut because of its length.
    pub was_cut: bool,
    /// Number of invalid byte sequences that were replaced in the text.
    pub replaced: u32,
}

/// The reason of a record that cannot be read.
pub const BAD_RECORD: &str = "bad_record";

/// Reason for leaving something out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The name of the rule, as `report.json` counts it: `too_short`, `language`, `exact_duplicate`, ...
    pub reason: &'static str,
    /// Measured value in this case, such as `41 % alphabetic, at least 60 % are wanted`; may be empty.
    pub detail: String,
}

/// Something that was left out while reading, such as a line over the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// File and line at which it starts.
    pub location: Location,
    /// Index of its source in the configuration.
    pub source: usize,
    /// Its length in bytes, as far as it is known.
    pub bytes: u64,
    /// Reason for leaving it out.
    pub rejection: Rejection,
    /// Its beginning, at most 500 bytes, for the report.
    pub excerpt: String,
}

/// One result of reading the corpus; results come in the order of the files.
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
    /// The cleaned text; of a rejected document, the text as far as cleaning had come.
    pub text: String,
    /// Reason for leaving the document out; `None` keeps it.
    pub rejection: Option<Rejection>,
    /// Its language as an ISO 639-3 code, if languages are identified.
    pub language: Option<&'static str>,
    /// Changes by cleaning and line filters, by name: the number of lines removed, or 1 for a step that
    /// changed something.
    pub changes: Vec<(&'static str, u64)>,
}
