//! Reads documents from files of all formats: detects the format, reads records, and assembles documents.
//!
//! Content is not judged here: something is left out only if it cannot be read or has no text.

use anyhow::Result;

use crate::corpus::Item;
use crate::corpus::read::documents::FileDocuments;
use crate::corpus::read::files::Found;
use base::error::Problem;
use config::DataConfig;

mod archive;
mod assembly;
mod content;
mod documents;
mod files;
mod json_array;
mod json_object;
mod jsonl;
mod parquet;
mod reading;
mod table;
mod text;
mod warc;
mod window;

pub use files::SourceFile;

#[cfg(test)]
mod tests;

/// Limits on the memory for one item while reading.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Most bytes of a line, of a JSON object, or of a field of a table.
    line_bytes: usize,
    /// Most bytes of a document.
    document_bytes: usize,
}

/// Files of a corpus in their fixed order.
#[derive(Debug, Clone)]
pub struct Corpus {
    files: Vec<SourceFile>,
    notes: Vec<String>,
    source_names: Vec<String>,
    limits: Limits,
}

impl Corpus {
    /// Finds the files of all sources; a pattern that matches nothing is an error that names it.
    pub fn open(config: &DataConfig) -> Result<Self> {
        let limits = Limits {
            line_bytes: usize::try_from(config.max_line_bytes)
                .unwrap_or(usize::MAX)
                .clamp(1, isize::MAX as usize / 2),
            document_bytes: usize::try_from(config.max_document_bytes)
                .unwrap_or(usize::MAX)
                .clamp(1, isize::MAX as usize / 2),
        };
        let Found { files, notes } = files::find(&config.sources)?;
        Ok(Self { files, notes, source_names: files::names(&config.sources), limits })
    }

    /// Returns the files: in the order of sources and their patterns, and the matches of a pattern sorted by
    /// name.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns notes for the log about the entries that were skipped while files were listed.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the names of the sources, in the order of the configuration.
    pub fn source_names(&self) -> &[String] {
        &self.source_names
    }

    /// Returns the bytes of all files as stored on disk; standard input counts as 0.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size_bytes).sum()
    }

    /// Returns a corpus of one of the files, by its index.
    #[must_use]
    pub fn only(&self, file: usize) -> Self {
        let files = vec![self.files[file].clone()];
        Self { files, notes: Vec::new(), source_names: self.source_names.clone(), limits: self.limits }
    }

    /// Iterates over all documents in order, from the start.
    pub fn documents(&self) -> Documents<'_> {
        Documents { corpus: self, next_file: 0, current: None, finished_bytes: 0, hashes: Vec::new() }
    }
}

/// Iterator over the documents of a corpus, and over items left out while reading; ends after the first
/// error.
///
/// The sequence depends only on the files and the configuration.
pub struct Documents<'a> {
    corpus: &'a Corpus,
    next_file: usize,
    current: Option<FileDocuments>,
    finished_bytes: u64,
    hashes: Vec<Option<String>>,
}

impl Documents<'_> {
    /// Returns the bytes of the files, as stored on disk, read so far, to compare with
    /// [`Corpus::size_bytes`].
    pub fn position_bytes(&self) -> u64 {
        self.finished_bytes + self.current.as_ref().map_or(0, FileDocuments::position_bytes)
    }

    /// Returns the hashes of the files read so far, each of the content that was read; `None` for standard
    /// input, and for a file that was not read completely.
    pub fn content_hashes(&self) -> &[Option<String>] {
        &self.hashes
    }

    /// Skips the next `count` items; fails if one of them cannot be read, or if there are fewer.
    pub fn skip_items(&mut self, count: u64) -> Result<()> {
        for skipped in 0..count {
            let Some(item) = self.next() else {
                let message = format!("the corpus holds {skipped} documents, {count} were to be skipped");
                return Err(Problem::new(message)
                    .hint("its files have changed since they were read before")
                    .into());
            };
            item?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(item) = current.advance()? {
                    return Ok(Some(item));
                }
                let file = &self.corpus.files[self.next_file - 1];
                self.hashes.push(current.content_hash(file)?);
                self.finished_bytes +=
                    if file.is_standard_input() { current.position_bytes() } else { file.size_bytes };
                self.current = None;
            }
            let Some(file) = self.corpus.files.get(self.next_file) else { return Ok(None) };
            self.next_file += 1;
            self.current = Some(FileDocuments::open(file, self.corpus.limits)?);
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
