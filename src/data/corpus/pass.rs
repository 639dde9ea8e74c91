//! The pass over the raw corpus: read -> clean, filter, check for contamination -> sketch -> parts on disk.
//!
//! One thread prefetches, all threads judge, and results are written in order, so that the bytes of the parts
//! do not depend on the number of threads. An interrupted pass resumes after its last whole part.
//!
//! Several processes that share the disk all read everything, and each judges and writes its own parts: the
//! end of a part is known before its documents are judged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::corpus::dedup::{Sketch, SketchWriter, Sketcher};
use crate::corpus::report::Tally;
use crate::corpus::store::{PartPaths, PartWriter};
use crate::corpus::{Corpus, Document, Item, Judge, Judged, Rejected, StoredDocument, store};
use base::fs;
use base::processes::Processes;
use config::DataConfig;

/// Text in a portion, in bytes; the last item of a portion may exceed it.
const PORTION_BYTES: u64 = 2 << 20;

/// Portions that are prefetched.
const PORTIONS_AHEAD: usize = 2;

/// Reads all of `corpus` and writes the kept documents into `folder`, in parts of about `part_bytes` of text.
/// Each process writes its own parts, and returns when the parts of all are written.
///
/// `progress` gets the number of bytes of files read.
pub(super) fn run(
    processes: Processes,
    corpus: &Corpus,
    config: &DataConfig,
    folder: &Path,
    part_bytes: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    // Rank 0 decides for all: another process may already see parts that rank 0 has begun to write.
    let found = if processes.is_first() { Some(unfinished_work(folder)?) } else { None };
    let Some((parts, items_done)) = processes.from_first(found)? else { return Ok(()) };
    let processor =
        ItemProcessor { judge: Judge::new(config)?, sketcher: Sketcher::new(&config.deduplication) };
    let mut assembler = PartAssembler { folder, sketcher: processor.sketcher.as_ref(), corpus, open: None };
    let mut next = PartNumbers { part: parts, raw_bytes: None, part_bytes };
    let mut content_hashes = Vec::new();
    std::thread::scope(|scope| {
        let (sender, portions) = sync_channel(PORTIONS_AHEAD);
        scope.spawn(move || read_portions(corpus, items_done, &sender));
        for portion in portions {
            let portion: Portion = portion?;
            let mut own: Vec<(usize, Item)> =
                portion.items.into_iter().map(|item| (next.assign(size_bytes(&item)), item)).collect();
            own.retain(|(part, _)| part % processes.size == processes.rank);
            let judged: Vec<(usize, Outcome)> =
                own.into_par_iter().map(|(part, item)| (part, processor.judge(item))).collect();
            for (part, outcome) in judged {
                assembler.add(part, outcome)?;
            }
            progress(portion.position_bytes);
            content_hashes = portion.content_hashes;
        }
        anyhow::Ok(())
    })?;
    assembler.finish_part()?;
    processes.wait_for_all()?;
    if processes.is_first() {
        store::set_complete(folder, next.parts(), &content_hashes)?;
    }
    Ok(())
}

/// Assigns items to parts, in order.
struct PartNumbers {
    part: usize,
    /// Bytes of the items in the part so far; `None` if it has no item.
    raw_bytes: Option<u64>,
    part_bytes: u64,
}

impl PartNumbers {
    /// Returns the part of the next item, which has `bytes` bytes.
    fn assign(&mut self, bytes: u64) -> usize {
        let part = self.part;
        let raw_bytes = self.raw_bytes.unwrap_or(0) + bytes;
        self.raw_bytes = Some(raw_bytes);
        if raw_bytes >= self.part_bytes {
            (self.part, self.raw_bytes) = (part + 1, None);
        }
        part
    }

    /// Returns the number of parts of the items so far.
    fn parts(&self) -> usize {
        self.part + usize::from(self.raw_bytes.is_some())
    }
}

/// Items that are sent from the reading thread to the judging threads at one time.
struct Portion {
    items: Vec<Item>,
    /// Bytes of files read up to the end of this portion.
    position_bytes: u64,
    /// Hashes of all files; only in the last portion.
    content_hashes: Vec<Option<String>>,
}

/// Sends all items after the first `skip`; stops early when the receiver is gone.
fn read_portions(corpus: &Corpus, skip: u64, sender: &SyncSender<Result<Portion>>) {
    let mut documents = corpus.documents();
    if let Err(e) = documents.skip_items(skip) {
        // The receiver gets the error instead of the first portion; if it is gone, the error need not be
        // reported.
        let _ = sender.send(Err(e));
        return;
    }
    let mut items = Vec::new();
    let mut bytes = 0;
    loop {
        let item = documents.next();
        let is_last = item.is_none();
        match item {
            Some(Err(e)) => {
                let _ = sender.send(Err(e));
                return;
            }
            Some(Ok(item)) => {
                bytes += size_bytes(&item);
                items.push(item);
            }
            None => {}
        }
        if bytes >= PORTION_BYTES || items.len() >= 4096 || is_last {
            let content_hashes = if is_last { documents.content_hashes().to_vec() } else { Vec::new() };
            let portion = Portion {
                items: std::mem::take(&mut items),
                position_bytes: documents.position_bytes(),
                content_hashes,
            };
            bytes = 0;
            if sender.send(Ok(portion)).is_err() || is_last {
                return;
            }
        }
    }
}

/// Returns the number of whole parts in `folder` and of the items in them; `None` if the pass is complete.
fn unfinished_work(folder: &Path) -> Result<Option<(usize, u64)>> {
    if store::is_complete(folder) {
        return Ok(None);
    }
    let whole = store::whole_parts(folder, |_: Tally| {})?;
    Ok(Some((whole.len(), whole.iter().map(|(_, entry)| entry.items).sum())))
}

fn size_bytes(item: &Item) -> u64 {
    match item {
        Item::Document(document) => document.text.len() as u64,
        Item::Rejected(rejected) => rejected.excerpt.len() as u64,
    }
}

/// Judges and sketches items, each independently of the others, on any thread.
struct ItemProcessor {
    judge: Judge,
    sketcher: Option<Sketcher>,
}

/// Result for one item: left out while reading, or judged.
enum Outcome {
    Unread(Rejected),
    Judged { document: Document, raw_bytes: u64, judged: Judged, sketch: Option<Sketch> },
}

impl ItemProcessor {
    fn judge(&self, item: Item) -> Outcome {
        match item {
            Item::Rejected(rejected) => Outcome::Unread(rejected),
            Item::Document(mut document) => {
                let text = std::mem::take(&mut document.text);
                let judged = self.judge.judge(&text);
                let sketcher = self.sketcher.as_ref().filter(|_| judged.rejection.is_none());
                let sketch = sketcher.map(|sketcher| sketcher.sketch(&judged.text));
                Outcome::Judged { document, raw_bytes: text.len() as u64, judged, sketch }
            }
        }
    }
}

/// Writes outcomes into parts, in order.
struct PartAssembler<'a> {
    folder: &'a Path,
    sketcher: Option<&'a Sketcher>,
    corpus: &'a Corpus,
    open: Option<(usize, OpenPart)>,
}

struct OpenPart {
    paths: PartPaths,
    documents: PartWriter,
    sketches: Option<SketchWriter>,
    tally: Tally,
    items: u64,
    /// Files that its documents come from, in the order of reading.
    files: Vec<Arc<Path>>,
}

impl PartAssembler<'_> {
    /// Adds an outcome to the end of part `number`; finishes the open part if it has another number.
    fn add(&mut self, number: usize, outcome: Outcome) -> Result<()> {
        if self.open.as_ref().is_some_and(|(open, _)| *open != number) {
            self.finish_part()?;
        }
        let (_, part) = match &mut self.open {
            Some(part) => part,
            empty => {
                let paths = PartPaths::new(self.folder, number);
                fs::create_folder(self.folder)?;
                empty.insert((number, OpenPart::new(paths, self.sketcher, self.corpus.source_names())?))
            }
        };
        part.add(outcome)
    }

    fn finish_part(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |(_, part)| part.finish())
    }
}

impl OpenPart {
    fn new(paths: PartPaths, sketcher: Option<&Sketcher>, source_names: &[String]) -> Result<Self> {
        let sketches =
            sketcher.map(|sketcher| SketchWriter::create(&paths.sketches, sketcher)).transpose()?;
        let documents = PartWriter::new()?;
        let tally = Tally::new(source_names);
        Ok(Self { paths, documents, sketches, tally, items: 0, files: Vec::new() })
    }

    fn add(&mut self, outcome: Outcome) -> Result<()> {
        self.items += 1;
        match outcome {
            Outcome::Unread(Rejected { location, source, bytes, rejection, excerpt }) => {
                self.tally.read(source, bytes, false, 0);
                self.tally.rejected(source, bytes, &rejection, &location, &excerpt);
            }
            Outcome::Judged { document, raw_bytes, judged, sketch } => {
                let Document { location, source, was_cut, replaced, .. } = document;
                self.tally.read(source, raw_bytes, was_cut, replaced);
                self.tally.changed(source, &judged.changes);
                if let Some(rejection) = &judged.rejection {
                    self.tally.rejected(source, raw_bytes, rejection, &location, &judged.text);
                    return Ok(());
                }
                let file = self.file_index(&location.path);
                self.documents.push(&StoredDocument::new(
                    judged.text,
                    source,
                    judged.language,
                    file,
                    location.line,
                ))?;
                if let (Some(sketches), Some(sketch)) = (&mut self.sketches, &sketch) {
                    sketches.push(sketch)?;
                }
            }
        }
        Ok(())
    }

    fn file_index(&mut self, path: &Arc<Path>) -> u32 {
        if self.files.last().is_none_or(|last| last != path) {
            self.files.push(Arc::clone(path));
        }
        self.files.len() as u32 - 1
    }

    fn finish(self) -> Result<()> {
        self.sketches.map(SketchWriter::finish).transpose().context("cannot write sketches of documents")?;
        let files: Vec<PathBuf> = self.files.iter().map(|path| path.to_path_buf()).collect();
        self.documents.finish(&self.paths, self.items, files, self.tally)
    }
}
