//! The sketches of a whole corpus, spread over files: all records in order, or the minima of one document by
//! its index.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::corpus::dedup::sketch::Parameters;
use crate::corpus::dedup::sketch_file::{HEADER_BYTES, SketchFile};
use base::fs;

/// Limit on open files: a quarter of the usual limit of a process.
const MOST_OPEN: usize = 256;

/// Sketch files in the order of the corpus, whose headers were checked.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) parameters: Parameters,
    files: Vec<SketchFile>,
    /// Index of the first document of each file.
    firsts: Vec<u64>,
    documents: u64,
    open: Vec<Option<fs::File>>,
    open_count: usize,
}

impl Parts {
    pub(super) fn open(paths: &[PathBuf], parameters: Parameters) -> Result<Self> {
        let files =
            paths.iter().map(|path| SketchFile::open(path, &parameters)).collect::<Result<Vec<_>>>()?;
        let mut firsts = Vec::new();
        let mut documents = 0;
        for file in &files {
            firsts.push(documents);
            documents += file.count;
        }
        let open = paths.iter().map(|_| None).collect();
        Ok(Self { parameters, files, firsts, documents, open, open_count: 0 })
    }

    /// Returns the number of documents of all parts.
    pub(super) fn documents(&self) -> u64 {
        self.documents
    }

    /// Calls `each` with the index and the record of every document in order; a wrong checksum is an error.
    pub(super) fn for_each(&self, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut index = 0;
        for file in &self.files {
            file.for_each(|record| {
                each(index, record)?;
                index += 1;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reads the minima of one document into `minima`, whose length is the number of permutations.
    pub(super) fn minima(&mut self, index: u64, minima: &mut [u8]) -> Result<()> {
        // An empty file begins at the same index as the next one: of the files that begin at or before
        // `index`, the last one has the document.
        let part = self.firsts.partition_point(|first| *first <= index) - 1;
        let record = (index - self.firsts[part]) * self.parameters.record_bytes() as u64;
        let offset = HEADER_BYTES as u64 + record + self.parameters.minima_start() as u64;
        let path = &self.files[part].path;
        if self.open[part].is_none() {
            if self.open_count == MOST_OPEN {
                self.open.fill_with(|| None);
                self.open_count = 0;
            }
            self.open_count += 1;
        }
        let file = match &mut self.open[part] {
            Some(file) => file,
            none => none.insert(fs::open(path)?),
        };
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(minima));
        read.with_context(|| format!("cannot read `{}`", path.display()))
    }
}
