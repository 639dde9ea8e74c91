//! Reads the documents of one part in sequence.

use std::io::BufReader;
use std::path::PathBuf;

use anyhow::Result;

use crate::corpus::store::{PartEntry, PartPaths, StoredDocument};
use base::error::Problem;
use base::fs;
use base::fs::TextFile;

/// Iterator over the documents of a part; ends after the first error.
pub(in crate::corpus) struct PartReader {
    reader: BufReader<TextFile>,
    path: PathBuf,
    /// Number of documents in the part.
    documents: u64,
    /// Number of documents still to be read.
    left: u64,
    /// Bytes of text still to be read.
    text_bytes_left: u64,
}

impl PartReader {
    pub(in crate::corpus) fn open<T>(paths: &PartPaths, entry: &PartEntry<T>) -> Result<Self> {
        let reader = BufReader::with_capacity(1 << 17, fs::open_decompressed(&paths.documents)?);
        Ok(Self {
            reader,
            path: paths.documents.clone(),
            documents: entry.documents,
            left: entry.documents,
            text_bytes_left: entry.text_bytes,
        })
    }
}

impl Iterator for PartReader {
    type Item = Result<StoredDocument>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match StoredDocument::decode(&mut self.reader, self.text_bytes_left as usize) {
            Ok(document) => {
                self.text_bytes_left -= document.text.len() as u64;
                Some(Ok(document))
            }
            Err(e) => {
                let number = self.documents - self.left;
                self.left = 0;
                let message = format!("is damaged, in document {number} or behind it: {e}");
                let problem = Problem::new(message).at(self.path.display());
                Some(Err(problem.hint("remove the folder that it lies in to read the corpus again").into()))
            }
        }
    }
}
