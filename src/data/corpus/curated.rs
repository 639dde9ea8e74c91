//! The documents that are left after deduplication, split into training and validation.
//!
//! Recomputed from the parts whenever it is needed; the code here writes no file that a later stage reads.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rayon::prelude::*;

use crate::corpus::dedup::{Duplicates, EXACT_DUPLICATE, NEAR_DUPLICATE, Sketcher};
use crate::corpus::report::Tally;
use crate::corpus::split::SplitTally;
use crate::corpus::store::{Part, PartEntry, PartReader};
use crate::corpus::{Corpus, KeptDocuments, Location, Rejection, Scan, StoredDocument, dedup, pass, store};
use base::error::Problem;
use base::processes::Processes;
use config::{DataConfig, DeduplicationConfig};

/// Least and most text of a part, in bytes. Between them, a part has about as much text as a shard.
const PART_BYTES: (u64, u64) = (64 << 10, 64 << 20);

/// Number of parts whose counts are in memory at a time before they are added up.
const COUNTED_AT_ONCE: usize = 64;

/// A step of the work on the raw text, as reported to progress callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reading, cleaning and filtering; in bytes of files.
    Read,
    /// Comparing documents; in records.
    Compare,
    /// Counting the kept documents; in bytes of text.
    Count,
}

/// Returns the disk space that finding duplicates takes for each document, in bytes.
pub fn deduplication_bytes_per_document(config: &DeduplicationConfig) -> u64 {
    Sketcher::new(config).map_or(0, |sketcher| (sketcher.record_bytes() + sketcher.scratch_bytes()) as u64)
}

/// The kept documents of a corpus.
pub struct Curated {
    /// The documents.
    pub kept: KeptDocuments,
    split: SplitTally,
    /// Counts of the documents read, left out and kept.
    pub tally: Tally,
}

impl Curated {
    /// Takes `corpus` through all steps that are not done in `folder` yet.
    ///
    /// `shard_tokens` of the configuration determines the size of the parts; `progress` gets the step, the
    /// amount done and the total. The `processes` share the folder and divide the work, and all get
    /// the result; only on rank 0 do the samples of duplicates name the documents that they repeat.
    pub fn make(
        processes: Processes,
        corpus: &Corpus,
        config: &DataConfig,
        folder: &Path,
        progress: &mut dyn FnMut(Step, u64, u64),
    ) -> Result<Self> {
        let part_bytes = config.shard_tokens.saturating_mul(4).clamp(PART_BYTES.0, PART_BYTES.1);
        let size_bytes = corpus.size_bytes();
        pass::run(processes, corpus, config, folder, part_bytes, &mut |done| {
            progress(Step::Read, done, size_bytes);
        })?;
        Self::open(processes, corpus.source_names(), config, folder, progress)
    }

    fn open(
        processes: Processes,
        source_names: &[String],
        config: &DataConfig,
        folder: &Path,
        progress: &mut dyn FnMut(Step, u64, u64),
    ) -> Result<Self> {
        let mut tally = Tally::new(source_names);
        let all = KeptDocuments::all(store::whole_parts(folder, |part| tally.merge(part))?);
        let duplicates = if Sketcher::new(&config.deduplication).is_some() {
            let sketches: Vec<PathBuf> = all.parts.iter().map(|(paths, _)| paths.sketches.clone()).collect();
            let memory_bytes = config.deduplication.memory_bytes as usize;
            Some(dedup::resolve(
                processes,
                &sketches,
                folder,
                &config.deduplication,
                memory_bytes,
                &mut |done, total| progress(Step::Compare, done, total),
            )?)
        } else {
            None
        };
        let (counted, split) = count_all(
            processes,
            &all,
            duplicates.as_ref(),
            config.validation_fraction,
            source_names,
            &mut |done, total| progress(Step::Count, done, total),
        )?;
        tally.merge(counted);
        name_originals(&all, duplicates.as_ref(), &mut tally)?;
        let kept = all.without(duplicates.map(Duplicates::into_left_out).unwrap_or_default());
        Ok(Self { kept, split, tally })
    }

    /// Returns the split and the amounts on its sides; fails when there is nothing to split.
    pub fn scan(&self) -> Result<Scan> {
        self.split.finish()
    }
}

/// Sets the details of the sampled duplicates to the document that each repeats. Until then, the detail holds
/// the index of the duplicate.
fn name_originals(all: &KeptDocuments, duplicates: Option<&Duplicates>, tally: &mut Tally) -> Result<()> {
    let Some(duplicates) = duplicates else { return Ok(()) };
    for reason in [EXACT_DUPLICATE, NEAR_DUPLICATE] {
        for sample in tally.samples.0.get_mut(reason).into_iter().flatten() {
            let original = sample.detail.parse().map(|index| duplicates.original(index));
            sample.detail.clear();
            if let Ok(index) = original
                && let Some(index) = index?
            {
                let (document, entry) = all.find(index)?;
                sample.detail = format!("repeats {}", location_of(&document, entry));
            }
        }
    }
    Ok(())
}

/// Counts the kept documents and the duplicates. Each process counts the parts whose number modulo the number
/// of processes is its rank; the sums of all are returned.
fn count_all(
    processes: Processes,
    all: &KeptDocuments,
    duplicates: Option<&Duplicates>,
    validation_fraction: f64,
    source_names: &[String],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Tally, SplitTally)> {
    let total: u64 = all.parts.iter().map(|(_, entry)| entry.text_bytes).sum();
    let mut own = (Tally::new(source_names), SplitTally::new(validation_fraction));
    let mut done = 0;
    progress(done, total);
    let parts: Vec<(usize, (&Part, &u64))> = all.parts.iter().zip(&all.first_documents).enumerate().collect();
    for some in parts.chunks(COUNTED_AT_ONCE * processes.size) {
        let counted: Vec<(Tally, SplitTally)> = some
            .par_iter()
            .filter(|(index, _)| index % processes.size == processes.rank)
            .map(|(_, (part, first))| count(part, **first, duplicates, validation_fraction, source_names))
            .collect::<Result<_>>()?;
        for more in counted {
            merge(&mut own, more);
        }
        done += some.iter().map(|(_, ((_, entry), _))| entry.text_bytes).sum::<u64>();
        progress(done, total);
    }
    if !processes.is_shared() {
        return Ok(own);
    }
    processes.wait_for_all()?;
    let mut counted = (Tally::new(source_names), SplitTally::new(validation_fraction));
    for more in processes.gather(&own)? {
        merge(&mut counted, more);
    }
    Ok(counted)
}

fn merge(counts: &mut (Tally, SplitTally), more: (Tally, SplitTally)) {
    counts.0.merge(more.0);
    counts.1.merge(&more.1);
}

/// Counts the kept documents of a part, and those that are left out because they are duplicates.
fn count(
    part: &Part,
    first_document: u64,
    duplicates: Option<&Duplicates>,
    validation_fraction: f64,
    source_names: &[String],
) -> Result<(Tally, SplitTally)> {
    let (paths, entry) = part;
    let mut tally = Tally::new(source_names);
    let mut split = SplitTally::new(validation_fraction);
    for (index, document) in (first_document..).zip(PartReader::open(paths, entry)?) {
        let document = document?;
        if document.source >= source_names.len() {
            let message =
                format!("is damaged: document {} is of source {}", index - first_document, document.source);
            return Err(Problem::new(message).at(paths.documents.display()).into());
        }
        let bytes = document.text.len() as u64;
        let Some(reason) = duplicates.and_then(|duplicates| duplicates.reason(index)) else {
            tally.kept(document.source, &document.text, document.language());
            split.add(document.key, bytes);
            continue;
        };
        let rejection = Rejection { reason, detail: index.to_string() };
        let location = location_of(&document, entry);
        tally.rejected(document.source, bytes, &rejection, &location, &document.text);
    }
    Ok((tally, split))
}

fn location_of(document: &StoredDocument, entry: &PartEntry<()>) -> Location {
    let path = entry.files.get(document.file as usize).map_or_else(|| Path::new("?"), PathBuf::as_path);
    Location { path: path.into(), line: document.line }
}
