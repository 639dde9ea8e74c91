//! Reads documents out of files: what a file is, line by line, one document after the other.
//!
//! It judges no content: what it leaves out, it leaves out because it cannot be read or has no text.

use anyhow::Result;

use crate::config::DataConfig;
use crate::corpus::Item;
use crate::corpus::read::assembly::FileDocuments;

mod assembly;
mod files;
mod jsonl;
mod lines;

pub use files::SourceFile;

#[cfg(test)]
mod tests;

/// The files of a corpus in their fixed order.
#[derive(Debug, Clone)]
pub struct Corpus {
    files: Vec<SourceFile>,
    source_names: Vec<String>,
    max_document_bytes: usize,
}

impl Corpus {
    /// Finds the files of all sources; a pattern that matches nothing is an error that names it.
    pub fn open(config: &DataConfig) -> Result<Self> {
        Ok(Self {
            files: files::find(&config.sources)?,
            source_names: files::names(&config.sources),
            max_document_bytes: config.max_document_bytes.max(1) as usize,
        })
    }

    /// The files: sources in the order of the configuration, patterns in theirs, matches sorted by name.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// What the sources are called, in the order of the configuration.
    pub fn source_names(&self) -> &[String] {
        &self.source_names
    }

    /// Bytes of all files as they lie on the disk.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size_bytes).sum()
    }

    /// All documents in order, from the start.
    pub fn documents(&self) -> Documents<'_> {
        Documents { corpus: self, next_file: 0, current: None, finished_bytes: 0 }
    }
}

/// Iterates over what a corpus holds; ends after the first error.
pub struct Documents<'a> {
    corpus: &'a Corpus,
    next_file: usize,
    current: Option<FileDocuments>,
    finished_bytes: u64,
}

impl Documents<'_> {
    /// Bytes of the files (as they lie on the disk) read so far, to compare with [`Corpus::size_bytes`].
    pub fn position_bytes(&self) -> u64 {
        self.finished_bytes + self.current.as_ref().map_or(0, FileDocuments::position_bytes)
    }

    fn advance(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(item) = current.advance()? {
                    return Ok(Some(item));
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
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if let Some(Err(_)) = &next {
            self.current = None;
            self.next_file = self.corpus.files.len();
        }
        next
    }
}
