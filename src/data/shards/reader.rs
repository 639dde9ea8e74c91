//! Reads documents of one side of the split by their index, directly from the files.
//!
//! Opening checks every shard against the manifest: length, hash, header. A shard in a bucket is checked when
//! it is downloaded. After that a document costs two positioned reads and no memory, so that corpora of any
//! size open in the same way. A file that shrinks during a run is an error, and not a bus error as with a
//! memory map.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::corpus::Side;
use crate::shards::Manifest;
use crate::shards::distant::{DistantShard, ShardCache};
use crate::shards::format::Layout;
use crate::shards::held::{OpenShard, le_u64};
use base::error::Problem;
use base::fs;

/// The documents of one side of the split.
#[derive(Debug)]
pub struct ShardSet {
    shards: Vec<Shard>,
    sources: Vec<SourceRange>,
    documents: u64,
    tokens: u64,
    vocab_size: usize,
    cache: ShardCache,
}

/// The documents of one source, which have consecutive indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRange {
    /// Name of the source.
    pub name: String,
    /// Index of its first document.
    pub first_document: u64,
    /// Number of its documents.
    pub documents: u64,
    /// Number of their tokens.
    pub tokens: u64,
}

/// Position of a document in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    shard: usize,
    start: u64,
    /// Number of tokens in the document.
    pub len: u64,
}

impl Place {
    /// The position of a document of `len` tokens in the same shard, which begins `between` tokens later.
    pub(crate) fn after(self, between: u64, len: u64) -> Self {
        Self { start: self.start + between, len, ..self }
    }
}

/// Location of a shard.
#[derive(Debug)]
enum Location {
    Here(Arc<OpenShard>),
    Distant(Arc<DistantShard>),
}

#[derive(Debug)]
struct Shard {
    location: Location,
    /// Index of its first document among the documents of all shards.
    first_document: u64,
    documents: u64,
}

impl ShardSet {
    /// Opens and verifies the shards of `side` in `folder`, which must contain a manifest.
    pub fn open(folder: &Path, side: Side) -> Result<Self> {
        Self::open_with(folder, &Manifest::read(folder)?, side, None)
    }

    /// Documents in memory only, such as a text that is evaluated once; ids must be below `vocab_size`.
    pub fn in_memory(documents: &[Vec<u32>], vocab_size: usize) -> Self {
        Self::in_memory_sources(&[("memory", documents)], vocab_size)
    }

    /// Documents of several named sources in memory.
    pub fn in_memory_sources(sources: &[(&str, &[Vec<u32>])], vocab_size: usize) -> Self {
        let mut set = Self::empty(Vec::new(), vocab_size, None);
        for (name, documents) in sources {
            let shard = OpenShard::in_memory(documents);
            let first_document = set.documents;
            let Layout { documents, tokens, .. } = shard.layout;
            set.sources.push(SourceRange { name: (*name).to_string(), first_document, documents, tokens });
            set.push(Location::Here(Arc::new(shard)), documents, tokens);
        }
        set
    }

    fn empty(sources: Vec<SourceRange>, vocab_size: usize, most: Option<usize>) -> Self {
        Self {
            shards: Vec::new(),
            sources,
            documents: 0,
            tokens: 0,
            vocab_size,
            cache: ShardCache::new(most),
        }
    }

    fn push(&mut self, location: Location, documents: u64, tokens: u64) {
        self.shards.push(Shard { location, first_document: self.documents, documents });
        self.documents += documents;
        self.tokens += tokens;
    }

    /// Opens the shards of one side, by a manifest that was read already. At most `most` of the shards in a
    /// bucket are on this disk at the same time; without a limit if it is `None`.
    pub fn open_with(folder: &Path, manifest: &Manifest, side: Side, most: Option<usize>) -> Result<Self> {
        let entry = manifest.side(side);
        let sources = manifest.sources.iter().map(|name| SourceRange {
            name: name.clone(),
            first_document: 0,
            documents: 0,
            tokens: 0,
        });
        let sources = sources.collect();
        let mut set = Self::empty(sources, manifest.vocab_size, most);
        for shard in &entry.shards {
            let path = folder.join(&shard.file);
            let location = if !fs::exists(&path) && stores::is_distant(&path) {
                Location::Distant(DistantShard::new(path, shard.clone()))
            } else {
                let open = OpenShard::open(&path, shard).map_err(|error| explain(error, folder))?;
                Location::Here(Arc::new(open))
            };
            let source = &mut set.sources[shard.source];
            source.documents += shard.documents;
            source.tokens += shard.tokens;
            set.push(location, shard.documents, shard.tokens);
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

    /// The sources in the order of their documents; a source may have no document.
    pub fn sources(&self) -> &[SourceRange] {
        &self.sources
    }

    /// Number of documents in all shards.
    pub fn num_documents(&self) -> u64 {
        self.documents
    }

    /// Number of tokens in all shards.
    pub fn num_tokens(&self) -> u64 {
        self.tokens
    }

    /// Indices of the documents in each shard.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.shards.iter().map(|shard| shard.first_document..shard.first_document + shard.documents).collect()
    }

    /// Downloads the shards of these documents before they are read, and waits for those that are in a
    /// bucket.
    pub fn bring(&self, documents: &[u64]) -> Result<()> {
        let shards: Vec<Arc<DistantShard>> =
            documents.iter().filter_map(|document| self.distant_shard(*document)).collect();
        if shards.is_empty() { Ok(()) } else { self.cache.bring(&shards) }
    }

    /// Same as [`bring`](Self::bring), in a thread. A failed download is tried again when the document is
    /// read.
    pub fn bring_meanwhile(self: &Arc<Self>, documents: Vec<u64>) {
        if documents.iter().any(|document| self.distant_shard(*document).is_some()) {
            let shards = Arc::clone(self);
            // Without a thread, shards are downloaded when they are read.
            let _ = std::thread::Builder::new()
                .name("shards ahead".to_string())
                .spawn(move || drop(shards.bring(&documents)));
        }
    }

    /// The shard of a document, if it is in a bucket.
    fn distant_shard(&self, document: u64) -> Option<Arc<DistantShard>> {
        let next = self.shards.partition_point(|shard| shard.first_document <= document);
        match &self.shards.get(next.checked_sub(1)?)?.location {
            Location::Distant(shard) => Some(Arc::clone(shard)),
            Location::Here(_) => None,
        }
    }

    fn open_shard(&self, number: usize) -> Result<Arc<OpenShard>> {
        match &self.shards[number].location {
            Location::Here(shard) => Ok(Arc::clone(shard)),
            Location::Distant(shard) => self.cache.open(shard),
        }
    }

    /// Number of entries in the vocabulary; every token id that is read is smaller.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The tokens of document `index`.
    pub fn document(&self, index: u64) -> Result<Vec<u32>> {
        let place = self.locate(index)?;
        let mut ids = Vec::new();
        self.read(&place, 0, place.len, &mut Vec::new(), &mut ids)?;
        Ok(ids)
    }

    /// Position and length of document `index`.
    pub fn locate(&self, index: u64) -> Result<Place> {
        let number = self.shard_of(index)?;
        let mut bytes = [0; 16];
        let shard = self.read_offsets(number, index, &mut bytes)?;
        place(&shard, number, index, &bytes)
    }

    /// Positions of `count` documents of one shard, from document `first` on.
    pub fn locate_run(&self, first: u64, count: u64) -> Result<Vec<Place>> {
        let number = self.shard_of(first)?;
        let mut bytes = vec![0; 8 * (count as usize + 1)];
        let shard = self.read_offsets(number, first, &mut bytes)?;
        (first..)
            .zip(bytes.windows(16).step_by(8))
            .map(|(at, pair)| place(&shard, number, at, pair))
            .collect()
    }

    /// Number of the shard with document `index`.
    fn shard_of(&self, index: u64) -> Result<usize> {
        let next = self.shards.partition_point(|shard| shard.first_document <= index);
        let number = next.checked_sub(1).filter(|_| index < self.documents).ok_or_else(|| {
            Problem::new(format!("there is no document {index}, the shards hold {}", self.documents))
        })?;
        Ok(number)
    }

    /// Fills `bytes` with the offsets of a shard, from that of document `first` on, and returns the shard.
    fn read_offsets(&self, number: usize, first: u64, bytes: &mut [u8]) -> Result<Arc<OpenShard>> {
        let shard = self.open_shard(number)?;
        let first_document = self.shards[number].first_document;
        shard.read_at(bytes, shard.layout.data_start + 8 * (first - first_document))?;
        Ok(shard)
    }

    /// Appends `count` tokens of the document at `place` to `ids`, from its token `from` on. The range must
    /// be inside of the document. `bytes` is memory that is reused, for what is read from the file.
    pub fn read(
        &self,
        place: &Place,
        from: u64,
        count: u64,
        bytes: &mut Vec<u8>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let shard = self.open_shard(place.shard)?;
        debug_assert!(from + count <= place.len);
        let width = shard.layout.token_bytes;
        bytes.resize((count * width) as usize, 0);
        shard.read_at(bytes, shard.layout.tokens_start() + (place.start + from) * width)?;
        let before = ids.len();
        match width {
            2 => ids.extend(bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])))),
            _ => ids.extend(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
        }
        let largest = ids[before..].iter().copied().max().unwrap_or(0) as usize;
        if count > 0 && largest >= self.vocab_size {
            let entries = self.vocab_size;
            return Err(
                shard.damaged(format!("holds token id {largest}, the vocabulary has {entries} entries"))
            );
        }
        Ok(())
    }

    /// The number of tokens of each document, in order.
    pub fn lengths(&self) -> Result<Vec<u32>> {
        let mut lengths = Vec::with_capacity(self.documents as usize);
        for number in 0..self.shards.len() {
            let shard = self.open_shard(number)?;
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

/// Position of document `index`, from the two offsets in `bytes`.
fn place(shard: &OpenShard, number: usize, index: u64, bytes: &[u8]) -> Result<Place> {
    let start = le_u64(&bytes[..8]);
    let end = le_u64(&bytes[8..]);
    if start > end || end > shard.layout.tokens {
        let tokens = shard.layout.tokens;
        return Err(
            shard.damaged(format!("document {index} is said to be at {start}..{end} of {tokens} tokens"))
        );
    }
    Ok(Place { shard: number, start, len: end - start })
}

/// Adds to the error of a damaged shard what to do about it. An I/O error, such as a failing disk or too many
/// open files, does not mean that the shard is damaged.
fn explain(error: anyhow::Error, folder: &Path) -> anyhow::Error {
    if error.chain().any(<dyn std::error::Error>::is::<std::io::Error>) {
        return error;
    }
    let folder = folder.display();
    error.context(format!("the shards in `{folder}` cannot be used; remove the folder to make them again"))
}
