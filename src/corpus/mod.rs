//! Reads documents out of files and splits them into training and validation.
//!
//! It streams: memory holds a line and a document, never a file. It knows no tokens. Cleaning, filters and
//! deduplication will stand between [`Documents`] and the split.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;

use crate::config::DataConfig;
use crate::corpus::reader::FileDocuments;

mod files;
mod jsonl;
mod lines;
mod reader;
mod split;

pub use files::SourceFile;
pub use lines::LINE_BYTES_MAX;
pub use split::Scan;
pub use split::Side;
pub use split::Split;

/// Where a document starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file as it was named or found.
    pub path: Arc<Path>,
    /// Line of the decompressed text, from 1.
    pub line: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// A piece of text that stands on its own: never empty, at most `data.max_document_bytes` long, lines end in `\n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The text.
    pub text: String,
    /// Where it starts.
    pub location: Location,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Documents, pieces of cut ones each counted.
    pub documents: u64,
    /// UTF-8 bytes of their text.
    pub bytes: u64,
    /// Documents of nothing but white space; they are left out.
    pub empty: u64,
    /// Documents that were cut because of their length.
    pub cut: u64,
}

/// The files of a corpus in their fixed order.
#[derive(Debug, Clone)]
pub struct Corpus {
    files: Vec<SourceFile>,
    max_document_bytes: usize,
}

impl Corpus {
    /// Finds the files of all sources; a pattern that matches nothing is an error that names it.
    pub fn open(config: &DataConfig) -> Result<Self> {
        Ok(Self { files: files::find(&config.sources)?, max_document_bytes: config.max_document_bytes.max(1) as usize })
    }

    /// The files: sources in the order of the configuration, patterns in theirs, matches sorted by name.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Bytes of all files as they lie on the disk.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size_bytes).sum()
    }

    /// All documents in order, from the start.
    pub fn documents(&self) -> Documents<'_> {
        Documents { corpus: self, next_file: 0, current: None, finished_bytes: 0, counts: Counts::default() }
    }
}

/// Iterates over the documents of a corpus; ends after the first error.
pub struct Documents<'a> {
    corpus: &'a Corpus,
    next_file: usize,
    current: Option<FileDocuments>,
    finished_bytes: u64,
    counts: Counts,
}

impl Documents<'_> {
    /// What was read so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of the files (as they lie on the disk) read so far, to compare with [`Corpus::size_bytes`].
    pub fn position_bytes(&self) -> u64 {
        self.finished_bytes + self.current.as_ref().map_or(0, FileDocuments::position_bytes)
    }

    fn advance(&mut self) -> Result<Option<Document>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(document) = current.advance(&mut self.counts)? {
                    return Ok(Some(document));
                }
                self.finished_bytes += self.corpus.files[self.next_file - 1].size_bytes;
                self.current = None;
            }
            let Some(file) = self.corpus.files.get(self.next_file) else { return Ok(None) };
            self.next_file += 1;
            self.current = Some(FileDocuments::open(file, self.corpus.max_document_bytes)?);
        }
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if let Some(Err(_)) = &next {
            self.current = None;
            self.next_file = self.corpus.files.len();
        }
        next
    }
}

#[cfg(test)]
mod tests;
