//! The documents that are left of a corpus, read in order from its parts.

use anyhow::{Context, Result};

use crate::corpus::dedup::Bitmap;
use crate::corpus::store::{Part, PartEntry, PartReader};
use crate::corpus::{Side, Split, StoredDocument};

/// The documents of all parts, except those that are left out. Document indices count the left-out ones too.
pub struct KeptDocuments {
    pub(super) parts: Vec<Part>,
    /// Index of each part's first document; after these, the number of all documents.
    pub(super) first_documents: Vec<u64>,
    left_out: Bitmap,
}

impl KeptDocuments {
    /// Returns all documents of these parts.
    pub(super) fn all(parts: Vec<Part>) -> Self {
        let ends = parts.iter().scan(0, |end, (_, entry)| {
            *end += entry.documents;
            Some(*end)
        });
        let first_documents = std::iter::once(0).chain(ends).collect();
        Self { parts, first_documents, left_out: Bitmap::default() }
    }

    pub(super) fn without(self, left_out: Bitmap) -> Self {
        Self { left_out, ..self }
    }

    /// Iterates over the documents from index `first` onwards, with their indices and sides.
    pub fn from_index(
        &self,
        split: Split,
        first: u64,
    ) -> impl Iterator<Item = Result<(u64, Side, StoredDocument)>> + '_ {
        let first_part = self.part_of(first);
        let parts = self.parts.iter().zip(&self.first_documents).skip(first_part);
        parts.flat_map(move |((paths, entry), start)| {
            let (documents, error) = match PartReader::open(paths, entry) {
                Ok(reader) => (Some(reader), None),
                Err(e) => (None, Some(Err(e))),
            };
            let numbered =
                (*start..).zip(documents.into_iter().flatten()).filter_map(move |(index, document)| {
                    match document {
                        Err(e) => Some(Err(e)),
                        Ok(_) if index < first || self.left_out.get(index) => None,
                        Ok(document) => Some(Ok((index, split.side(document.key), document))),
                    }
                });
            error.into_iter().chain(numbered)
        })
    }

    /// Reads a document, kept or left out; returns it with the entry of its part.
    pub(super) fn find(&self, index: u64) -> Result<(StoredDocument, &PartEntry<()>)> {
        let part = self.part_of(index);
        let (paths, entry) = &self.parts[part];
        let document = PartReader::open(paths, entry)?.nth((index - self.first_documents[part]) as usize);
        Ok((document.context("a duplicate repeats a document of the corpus")??, entry))
    }

    fn part_of(&self, index: u64) -> usize {
        self.first_documents.partition_point(|start| *start <= index).saturating_sub(1)
    }
}
