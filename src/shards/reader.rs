//! Reads documents of one side of the split by their index, straight from the files.
//!
//! Opening checks every shard against the manifest: length, hash, header. After that a document costs two
//! positioned reads and no memory is held, so that corpora of any size open alike; a file that shrinks under
//! a run is an error and not a bus error, as it would be with a memory map.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;

use crate::corpus::Side;
use crate::error::Problem;
use crate::fs;
use crate::fs::File;
use crate::shards::Manifest;
use crate::shards::ShardEntry;
use crate::shards::format;
use crate::shards::format::Layout;

/// The documents of one side of the split.
#[derive(Debug)]
pub struct ShardSet {
    shards: Vec<Shard>,
    sources: Vec<SourceRange>,
    documents: u64,
    tokens: u64,
    vocab_size: usize,
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

/// Where the bytes of a shard are.
#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Shard {
    bytes: Bytes,
    path: PathBuf,
    pub(super) layout: Layout,
    /// Index of its first document among all.
    first_document: u64,
}

impl ShardSet {
    /// Opens and verifies the shards of `side` in `folder`, which must hold a manifest.
    pub fn open(folder: &Path, side: Side) -> Result<Self> {
        Self::open_with(folder, &Manifest::read(folder)?, side)
    }

    /// Documents that never lie in a file, such as a text that is evaluated once; ids must be below
    /// `vocab_size`.
    pub fn in_memory(documents: &[Vec<u32>], vocab_size: usize) -> Self {
        Self::in_memory_sources(&[("memory", documents)], vocab_size)
    }

    /// Documents of several named sources in memory.
    pub fn in_memory_sources(sources: &[(&str, &[Vec<u32>])], vocab_size: usize) -> Self {
        let mut set = Self { shards: Vec::new(), sources: Vec::new(), documents: 0, tokens: 0, vocab_size };
        for (name, documents) in sources {
            let (shard, first_document) = (Shard::in_memory(documents, set.documents), set.documents);
            let Layout { documents, tokens, .. } = shard.layout;
            set.sources.push(SourceRange { name: (*name).to_string(), first_document, documents, tokens });
            set.documents += documents;
            set.tokens += tokens;
            set.shards.push(shard);
        }
        set
    }

    /// Opens the shards of one side by a manifest that was read already.
    pub fn open_with(folder: &Path, manifest: &Manifest, side: Side) -> Result<Self> {
        let entry = manifest.side(side);
        let source =
            |name: &String| SourceRange { name: name.clone(), first_document: 0, documents: 0, tokens: 0 };
        let sources = manifest.sources.iter().map(source).collect();
        let mut set =
            Self { shards: Vec::new(), sources, documents: 0, tokens: 0, vocab_size: manifest.vocab_size };
        for shard_entry in &entry.shards {
            let shard = Shard::open(&folder.join(&shard_entry.file), shard_entry, set.documents)
                .map_err(|error| explain(error, folder))?;
            let source = &mut set.sources[shard_entry.source];
            source.documents += shard.layout.documents;
            source.tokens += shard.layout.tokens;
            set.documents += shard.layout.documents;
            set.tokens += shard.layout.tokens;
            set.shards.push(shard);
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
        let next = self.shards.partition_point(|shard| shard.first_document <= index);
        let (shard, number) = next
            .checked_sub(1)
            .map(|number| (&self.shards[number], number))
            .filter(|_| index < self.documents)
            .ok_or_else(|| {
                Problem::new(format!("there is no document {index}, the shards hold {}", self.documents))
            })?;
        let mut bytes = [0; 16];
        shard.read_at(&mut bytes, shard.layout.data_start + 8 * (index - shard.first_document))?;
        let (start, end) = (le_u64(&bytes[..8]), le_u64(&bytes[8..]));
        if start > end || end > shard.layout.tokens {
            return Err(shard.damaged(format!(
                "document {index} is said to be at {start}..{end} of {} tokens",
                shard.layout.tokens
            )));
        }
        Ok(Place { shard: number, start, len: end - start })
    }

    /// Adds `count` tokens of the document at `place`, from its token `from` on, to `ids`; the range must lie
    /// inside it.
    pub fn read(&self, place: &Place, from: u64, count: u64, ids: &mut Vec<u32>) -> Result<()> {
        let shard = &self.shards[place.shard];
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
        for shard in &self.shards {
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

impl Shard {
    fn in_memory(documents: &[Vec<u32>], first_document: u64) -> Self {
        let tokens: u64 = documents.iter().map(|d| d.len() as u64).sum();
        let ends = documents.iter().scan(0u64, |end, document| {
            *end += document.len() as u64;
            Some(*end)
        });
        let mut bytes: Vec<u8> = std::iter::once(0).chain(ends).flat_map(u64::to_le_bytes).collect();
        bytes.extend(documents.iter().flatten().flat_map(|id| id.to_le_bytes()));
        let layout = Layout { documents: documents.len() as u64, tokens, token_bytes: 4, data_start: 0 };
        Self { bytes: Bytes::Memory(bytes), path: PathBuf::from("memory"), layout, first_document }
    }

    /// Opens a file and compares length, header and hash with its entry.
    pub(super) fn open(path: &Path, entry: &ShardEntry, first_document: u64) -> Result<Self> {
        let broken = |message: String| Problem::new(message).at(path.display());
        let mut file = fs::open(path)?;
        let file_bytes = fs::len_bytes(path)?;
        if file_bytes != entry.bytes {
            return Err(broken(format!(
                "has {file_bytes} bytes, the manifest says {}: it is cut or was replaced",
                entry.bytes
            ))
            .into());
        }
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).with_context(|| format!("cannot read `{}`", path.display()))?;
        let header_bytes = le_u64(&length);
        if header_bytes > format::HEADER_BYTES_MAX || header_bytes + 8 > file_bytes {
            return Err(broken(format!(
                "has a header of {header_bytes} bytes: it is damaged or not a shard"
            ))
            .into());
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact_at(&mut header, 8).with_context(|| format!("cannot read `{}`", path.display()))?;
        let layout = format::decode_header(&header, file_bytes).map_err(broken)?;
        let sha256 =
            fs::sha256_of_reader(&mut file).with_context(|| format!("cannot read `{}`", path.display()))?;
        if sha256 != entry.sha256 || (layout.documents, layout.tokens) != (entry.documents, entry.tokens) {
            return Err(broken(
                "does not match its hash in the manifest: it is damaged or was replaced".to_string(),
            )
            .into());
        }
        Ok(Self { bytes: Bytes::File(file), path: path.to_path_buf(), layout, first_document })
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        match &self.bytes {
            Bytes::File(file) => file.read_exact_at(bytes, offset),
            Bytes::Memory(all) => all.as_slice().get(offset as usize..).unwrap_or_default().read_exact(bytes),
        }
        .with_context(|| format!("cannot read `{}` at byte {offset}", self.path.display()))
    }

    pub(super) fn damaged(&self, message: String) -> anyhow::Error {
        Problem::new(message).at(self.path.display()).hint("it is damaged: prepare the text again").into()
    }
}

/// What to do about a shard that is damaged. A disk that fails and too many open files say nothing of it.
fn explain(error: anyhow::Error, folder: &Path) -> anyhow::Error {
    if error.chain().any(<dyn std::error::Error>::is::<std::io::Error>) {
        return error;
    }
    let folder = folder.display();
    error.context(format!("the shards in `{folder}` cannot be used; remove the folder to make them again"))
}

pub(super) fn le_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
