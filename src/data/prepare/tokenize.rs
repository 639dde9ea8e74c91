//! From kept documents to shards, with a journal: an interrupted run resumes after the last finished shard of
//! each side.
//!
//! The journal counts exactly the documents in finished shards, never more, so that a resumed run ends with
//! the same bytes and the same counts as an uninterrupted one.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::corpus::{KeptDocuments, Side, Split};
use crate::prepare::encode;
use crate::prepare::encode::Task;
use crate::prepare::meter::Meter;
use crate::prepare::portions::Kept;
use crate::shards::{ShardWriter, SplitEntry};
use crate::tokenizer::{Fertility, Tokenizer, UnknownText};
use base::error::Problem;
use base::fs;
use base::processes::Processes;
use base::quantity::MOST_ON_A_DISK;

const JOURNAL_JSON: &str = "progress.json";

const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Counts of the finished shards of one side.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SideProgress {
    /// Index of the first document that is in no finished shard.
    next_document: u64,
    /// Entries of the finished shards, and their counts.
    pub(super) written: SplitEntry,
    /// Documents for which the tokenizer has no token.
    pub(super) without_tokens: u64,
    /// How well the tokenizer fits each source.
    pub(super) fertility: Vec<Fertility>,
    /// For each source, the bytes of text that the tokenizer does not know, and the bytes that were checked.
    #[serde(default)]
    pub(super) unknown_text: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
    settings_sha256: String,
    tokenizer: String,
    train: SideProgress,
    validation: SideProgress,
}

/// Settings of the shard writers.
pub(super) struct Options<'a> {
    pub(super) folder: &'a Path,
    pub(super) settings_sha256: &'a str,
    pub(super) shard_tokens: u64,
    pub(super) sources: usize,
}

/// Writes the missing shards of both sides and returns the counts of all: training first, then validation.
/// All `processes` but rank 0 call [`encode::help`].
pub(super) fn run(
    processes: Processes,
    documents: &KeptDocuments,
    split: Split,
    tokenizer: &Tokenizer,
    options: &Options,
    meter: &mut Meter,
) -> Result<[SideProgress; 2]> {
    let journal = Journal::read_or_new(tokenizer, options)?;
    let mut sides = [
        SideWriter::new(Side::Train, &journal.train, tokenizer, options),
        SideWriter::new(Side::Validation, &journal.validation, tokenizer, options),
    ];
    let task = Task { split, first: sides.each_ref().map(|side| side.resumed_at) };
    processes.from_first(Some(task))?;
    meter.set_done(journal.train.written.text_bytes + journal.validation.written.text_bytes);
    encode::for_each(processes, documents, task, tokenizer, |portion, encoded| {
        let mut wrote_shard = false;
        for (kept, ids) in portion.iter().zip(encoded) {
            wrote_shard |= sides[kept.side as usize].add(kept, ids, tokenizer)?;
        }
        if wrote_shard {
            let [train, validation] = sides.each_ref().map(|side| side.saved.clone());
            Journal { train, validation, ..journal.clone() }.write(options.folder)?;
        }
        meter.add(portion.iter().map(|kept| kept.document.text.len() as u64).sum());
        Ok(())
    })?;
    let [train, validation] = sides;
    let finished = [train.finish()?, validation.finish()?];
    Ok(finished)
}

/// Removes the journal, which is not needed once all shards are finished.
pub(super) fn forget(folder: &Path) -> Result<()> {
    fs::remove_file(&folder.join(JOURNAL_JSON))
}

impl Journal {
    /// Reads the journal of the folder; an empty one if there is no journal. Fails if it belongs to other
    /// settings.
    fn read_or_new(tokenizer: &Tokenizer, options: &Options) -> Result<Self> {
        let nothing = SideProgress {
            next_document: 0,
            written: SplitEntry::default(),
            without_tokens: 0,
            fertility: vec![Fertility::default(); options.sources],
            unknown_text: Vec::new(),
        };
        let new = Self {
            settings_sha256: options.settings_sha256.to_string(),
            tokenizer: tokenizer.fingerprint().to_string(),
            train: nothing.clone(),
            validation: nothing,
        };
        let path = options.folder.join(JOURNAL_JSON);
        if !fs::exists(&path) {
            return Ok(new);
        }
        let text = fs::read_text_capped(&path, JOURNAL_BYTES_MAX)?;
        let hint = format!("remove the folder `{}` to make the shards again", options.folder.display());
        let found: Self = serde_json::from_str(&text)
            .map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()).hint(&hint))?;
        if found.settings_sha256 != new.settings_sha256
            || found.tokenizer != new.tokenizer
            || [&found.train, &found.validation].iter().any(|side| side.fertility.len() != options.sources)
        {
            return Err(Problem::new("belongs to shards made with another tokenizer or other settings")
                .at(path.display())
                .hint(hint)
                .into());
        }
        let claims = [&found.train, &found.validation].map(|side| {
            let SplitEntry { documents, tokens, text_bytes, .. } = side.written;
            [documents, tokens, text_bytes, side.without_tokens]
        });
        if let Some(claim) = claims.as_flattened().iter().find(|claim| **claim > MOST_ON_A_DISK) {
            let message = format!("is broken: it counts {claim} documents, tokens or bytes");
            return Err(Problem::new(message).at(path.display()).hint(hint).into());
        }
        for entry in found.train.written.shards.iter().chain(&found.validation.written.shards) {
            let shard = options.folder.join(&entry.file);
            if fs::len_bytes(&shard)? != entry.bytes {
                return Err(Problem::new(format!(
                    "does not have the {} bytes it was written with",
                    entry.bytes
                ))
                .at(shard.display())
                .hint(hint)
                .into());
            }
        }
        Ok(found)
    }

    fn write(&self, folder: &Path) -> Result<()> {
        fs::write_bytes(&folder.join(JOURNAL_JSON), serde_json::to_string(self)?.as_bytes())
    }
}

/// Writes the shards of one side and counts their documents.
struct SideWriter {
    writer: ShardWriter,
    /// Index of the first document that this run adds.
    resumed_at: u64,
    /// Counts of all documents that were added; the next two fields too.
    without_tokens: u64,
    fertility: Vec<Fertility>,
    unknown_text: Vec<UnknownText>,
    /// Counts of the documents in finished shards.
    saved: SideProgress,
}

impl SideWriter {
    fn new(side: Side, progress: &SideProgress, tokenizer: &Tokenizer, options: &Options) -> Self {
        let writer = ShardWriter::new(
            options.folder,
            side,
            tokenizer.fingerprint(),
            tokenizer.vocab_size(),
            options.shard_tokens,
        );
        let mut unknown_text = Vec::with_capacity(options.sources);
        for source in 0..options.sources {
            let (unknown_bytes, looked_at_bytes) =
                progress.unknown_text.get(source).copied().unwrap_or_default();
            unknown_text.push(UnknownText { unknown_bytes, looked_at_bytes });
        }
        Self {
            writer: writer.behind(progress.written.clone()),
            resumed_at: progress.next_document,
            without_tokens: progress.without_tokens,
            fertility: progress.fertility.clone(),
            unknown_text,
            saved: progress.clone(),
        }
    }

    /// Adds a document; returns `true` if a shard was written, which `saved` then counts.
    fn add(&mut self, kept: &Kept, ids: &[u32], tokenizer: &Tokenizer) -> Result<bool> {
        if ids.is_empty() {
            self.without_tokens += 1;
            return Ok(false);
        }
        let source = kept.document.source;
        let text = &kept.document.text;
        let is_full = self.writer.is_full_for(source, ids.len());
        if is_full {
            self.writer.write_shard()?;
            self.save(kept.index);
        }
        self.writer.push(source, ids, text.len() as u64)?;
        self.fertility[source].add(text, ids, tokenizer.special().unk);
        self.unknown_text[source].add(tokenizer, text, ids)?;
        Ok(is_full)
    }

    fn save(&mut self, next_document: u64) {
        let written = self.writer.written().clone();
        let fertility = self.fertility.clone();
        let unknown_text =
            self.unknown_text.iter().map(|text| (text.unknown_bytes, text.looked_at_bytes)).collect();
        let without_tokens = self.without_tokens;
        self.saved = SideProgress { next_document, written, without_tokens, fertility, unknown_text };
    }

    fn finish(mut self) -> Result<SideProgress> {
        self.writer.write_shard()?;
        self.save(u64::MAX);
        Ok(self.saved)
    }
}
