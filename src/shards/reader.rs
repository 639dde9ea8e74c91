//! Reads documents of one side of the split by their index, straight from the files.
//!
//! Opening checks every shard against the manifest: length, hash, header; one that lies in a bucket is
//! checked when it comes. After that a document costs two positioned reads and no memory is held, so that
//! corpora of any size open alike; a file that shrinks under a run is an error and not a bus error, as it
//! would be with a memory map.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::corpus::Side;
use crate::error::Problem;
use crate::fs;
use crate::shards::Manifest;
use crate::shards::distant::Shelf;
use crate::shards::distant::Slot;
use crate::shards::format::Layout;
use crate::shards::held::Held;
use crate::shards::held::le_u64;
use crate::stores;

/// The documents of one side of the split.
#[derive(Debug)]
pub struct ShardSet {
    shards: Vec<Shard>,
    sources: Vec<SourceRange>,
    documents: u64,
    tokens: u64,
    vocab_size: usize,
    shelf: Shelf,
}

/// The documents of one source: they follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRange {
    /// What the source is called.
    pub name: String,
    /// Index of its first document.
    pub first_document: u64,
    /// Its documents.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// Where a document lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    shard: usize,
    start: u64,
    /// Tokens of the document.
    pub len: u64,
}

/// Where a shard is.
#[derive(Debug)]
enum Whereabouts {
    Here(Arc<Held>),
    Distant(Arc<Slot>),
}

#[derive(Debug)]
struct Shard {
    place: Whereabouts,
    /// Index of its first document among all.
    first_document: u64,
    documents: u64,
}

impl ShardSet {
    /// Opens and verifies the shards of `side` in `folder`, which must hold a manifest.
    pub fn open(folder: &Path, side: Side) -> Result<Self> {
        Self::open_with(folder, &Manifest::read(folder)?, side, None)
    }

    /// Documents that never lie in a file, such as a text that is evaluated once; ids must be below
    /// `vocab_size`.
    pub fn in_memory(documents: &[Vec<u32>], vocab_size: usize) -> Self {
        Self::in_memory_sources(&[("memory", documents)], vocab_size)
    }

    /// Documents of several named sources in memory.
    pub fn in_memory_sources(sources: &[(&str, &[Vec<u32>])], vocab_size: usize) -> Self {
        let mut set = Self::empty(Vec::new(), vocab_size, None);
        for (name, documents) in sources {
            let (held, first_document) = (Held::in_memory(documents), set.documents);
            let Layout { documents, tokens, .. } = held.layout;
            set.sources.push(SourceRange { name: (*name).to_string(), first_document, documents, tokens });
            set.push(Whereabouts::Here(Arc::new(held)), documents, tokens);
        }
        set
    }

    fn empty(sources: Vec<SourceRange>, vocab_size: usize, most: Option<usize>) -> Self {
        Self { shards: Vec::new(), sources, documents: 0, tokens: 0, vocab_size, shelf: Shelf::new(most) }
    }

    fn push(&mut self, place: Whereabouts, documents: u64, tokens: u64) {
        self.shards.push(Shard { place, first_document: self.documents, documents });
        self.documents += documents;
        self.tokens += tokens;
    }

    /// Opens the shards of one side by a manifest that was read already. Of those that lie in a bucket,
    /// `most` are here at once, or all.
    pub fn open_with(folder: &Path, manifest: &Manifest, side: Side, most: Option<usize>) -> Result<Self> {
        let entry = manifest.side(side);
        let source =
            |name: &String| SourceRange { name: name.clone(), first_document: 0, documents: 0, tokens: 0 };
        let sources = manifest.sources.iter().map(source).collect();
        let mut set = Self::empty(sources, manifest.vocab_size, most);
        for shard in &entry.shards {
            let path = folder.join(&shard.file);
            let place = if !fs::exists(&path) && stores::is_distant(&path) {
                Whereabouts::Distant(Slot::new(path, shard.clone()))
            } else {
                let held = Held::open(&path, shard).map_err(|error| explain(error, folder))?;
                Whereabouts::Here(Arc::new(held))
            };
            let source = &mut set.sources[shard.source];
            source.documents += shard.documents;
            source.tokens += shard.tokens;
            set.push(place, shard.documents, shard.tokens);
        }
        if (set.documents, set.tokens) != (entry.documents, entry.tokens) {
            return Err(Problem::new("has totals that contradict its list of shards")
                .at(folder.join(super::MANIFEST_JSON).display())
                .into());
        }
        let mut first_document = 0;
        for source in &mut set.sources {
            source.first_document = first_document;
            first_document += source.documents;
        }
        Ok(set)
    }

    /// The sources in the order of their documents; one may have none.
    pub fn sources(&self) -> &[SourceRange] {
        &self.sources
    }

    /// Documents in all shards.
    pub fn num_documents(&self) -> u64 {
        self.documents
    }

    /// Tokens in all shards.
    pub fn num_tokens(&self) -> u64 {
        self.tokens
    }

    /// The documents of each shard.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let range = |shard: &Shard| shard.first_document..shard.first_document + shard.documents;
        self.shards.iter().map(range).collect()
    }

    /// Has the shards of these documents here before they are read: waits for those that lie in a bucket.
    pub fn bring(&self, documents: &[u64]) -> Result<()> {
        let slots: Vec<Arc<Slot>> = documents.iter().filter_map(|document| self.slot(*document)).collect();
        if slots.is_empty() { Ok(()) } else { self.shelf.bring(&slots) }
    }

    /// As [`bring`](Self::bring), beside what goes on. What fails is tried again when it is read.
    pub fn bring_meanwhile(self: &Arc<Self>, documents: Vec<u64>) {
        if documents.iter().any(|document| self.slot(*document).is_some()) {
            let shards = Arc::clone(self);
            let bring = move || drop(shards.bring(&documents));
            // Without a thread they come when they are read.
            let _ = std::thread::Builder::new().name("shards ahead".to_string()).spawn(bring);
        }
    }

    /// The slot of the shard of a document, where that lies in a bucket.
    fn slot(&self, document: u64) -> Option<Arc<Slot>> {
        let next = self.shards.partition_point(|shard| shard.first_document <= document);
        match &self.shards.get(next.checked_sub(1)?)?.place {
            Whereabouts::Distant(slot) => Some(Arc::clone(slot)),
            Whereabouts::Here(_) => None,
        }
    }

    fn held(&self, number: usize) -> Result<Arc<Held>> {
        match &self.shards[number].place {
            Whereabouts::Here(held) => Ok(Arc::clone(held)),
            Whereabouts::Distant(slot) => self.shelf.held(slot),
        }
    }

    /// Entries of the vocabulary; every token id that is read is below.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The tokens of document `index`.
    pub fn document(&self, index: u64) -> Result<Vec<u32>> {
        let place = self.locate(index)?;
        let mut ids = Vec::new();
        self.read(&place, 0, place.len, &mut ids)?;
        Ok(ids)
    }

    /// Where document `index` lies and how long it is.
    pub fn locate(&self, index: u64) -> Result<Place> {
        let number = self.shard_of(index)?;
        let mut bytes = [0; 16];
        let shard = self.read_offsets(number, index, &mut bytes)?;
        place(&shard, number, index, &bytes)
    }

    /// The positions of `count` documents of one shard, from document `first` on.
    pub fn locate_run(&self, first: u64, count: u64) -> Result<Vec<Place>> {
        let number = self.shard_of(first)?;
        let mut bytes = vec![0; 8 * (count as usize + 1)];
        let shard = self.read_offsets(number, first, &mut bytes)?;
        (first..)
            .zip(bytes.windows(16).step_by(8))
            .map(|(at, pair)| place(&shard, number, at, pair))
            .collect()
    }

    /// The shard of document `index`.
    fn shard_of(&self, index: u64) -> Result<usize> {
        let next = self.shards.partition_point(|shard| shard.first_document <= index);
        let number = next.checked_sub(1).filter(|_| index < self.documents).ok_or_else(|| {
            Problem::new(format!("there is no document {index}, the shards hold {}", self.documents))
        })?;
        Ok(number)
    }

    /// Fills `bytes` with the offsets of a shard from those of document `first` on.
    fn read_offsets(&self, number: usize, first: u64, bytes: &mut [u8]) -> Result<Arc<Held>> {
        let (shard, first_document) = (self.held(number)?, self.shards[number].first_document);
        shard.read_at(bytes, shard.layout.data_start + 8 * (first - first_document))?;
        Ok(shard)
    }

    /// Adds `count` tokens of the document at `place`, from its token `from` on, to `ids`; the range must lie
    /// inside it.
    pub fn read(&self, place: &Place, from: u64, count: u64, ids: &mut Vec<u32>) -> Result<()> {
        let shard = self.held(place.shard)?;
        debug_assert!(from + count <= place.len);
        let width = shard.layout.token_bytes;
        let mut bytes = vec![0; (count * width) as usize];
        shard.read_at(&mut bytes, shard.layout.tokens_start() + (place.start + from) * width)?;
        let before = ids.len();
        match width {
            2 => ids.extend(bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])))),
            _ => ids.extend(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
        }
        match ids[before..].iter().find(|id| **id as usize >= self.vocab_size) {
            Some(id) => {
                Err(shard
                    .damaged(format!("holds token id {id}, the vocabulary has {} entries", self.vocab_size)))
            }
            None => Ok(()),
        }
    }

    /// The number of tokens of each document, in order.
    pub fn lengths(&self) -> Result<Vec<u32>> {
        let mut lengths = Vec::with_capacity(self.documents as usize);
        for number in 0..self.shards.len() {
            let shard = self.held(number)?;
            let mut bytes = vec![0; 8 * (shard.layout.documents as usize + 1)];
            shard.read_at(&mut bytes, shard.layout.data_start)?;
            let offsets: Vec<u64> = bytes.chunks_exact(8).map(le_u64).collect();
            for pair in offsets.windows(2) {
                let length = pair[1].checked_sub(pair[0]).and_then(|length| u32::try_from(length).ok());
                lengths.push(length.ok_or_else(|| shard.damaged("its offsets do not grow".to_string()))?);
            }
        }
        Ok(lengths)
    }
}

/// The position of document `index`, by the two offsets in `bytes`.
fn place(shard: &Held, number: usize, index: u64, bytes: &[u8]) -> Result<Place> {
    let (start, end) = (le_u64(&bytes[..8]), le_u64(&bytes[8..]));
    if start > end || end > shard.layout.tokens {
        let tokens = shard.layout.tokens;
        return Err(
            shard.damaged(format!("document {index} is said to be at {start}..{end} of {tokens} tokens"))
        );
    }
    Ok(Place { shard: number, start, len: end - start })
}

/// What to do about a shard that is damaged. A disk that fails and too many open files say nothing of it.
fn explain(error: anyhow::Error, folder: &Path) -> anyhow::Error {
    if error.chain().any(<dyn std::error::Error>::is::<std::io::Error>) {
        return error;
    }
    let folder = folder.display();
    error.context(format!("the shards in `{folder}` cannot be used; remove the folder to make them again"))
}
