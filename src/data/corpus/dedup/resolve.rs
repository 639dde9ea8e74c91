//! Finds the documents that repeat others from the sketches of all documents.
//!
//! All data that grows with the corpus is in unnamed files of `scratch`: a crash leaves none of them, and the
//! search is repeated.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::corpus::dedup::candidates::Bucket;
use crate::corpus::dedup::duplicates::{Bitmap, Duplicates, Originals};
use crate::corpus::dedup::minhash::similarity;
use crate::corpus::dedup::parts::Parts;
use crate::corpus::dedup::sketch::{HASH_BYTES, KEY_BYTES, Parameters};
use crate::corpus::dedup::sketch_file::u64_at;
use crate::corpus::dedup::sort::{Sorted, Sorter};
use base::processes::Processes;
use config::DeduplicationConfig;

/// Finds the duplicates among the documents whose sketches are in `parts`, numbered from 0 over all parts in
/// order.
///
/// The `processes` share the files and divide the sorting: equal texts by their hash, candidates by
/// bands. All get the duplicates; only rank 0, which visits the candidates in order, can name the documents
/// that they repeat.
///
/// Each process needs about `memory_bytes` and two bits per document; `scratch` needs
/// [`super::Sketcher::scratch_bytes`] per document, and more if many documents are similar. `progress` gets
/// the work done and the total, in units of its own. A damaged file, or one made with other settings, is an
/// error that names the file.
pub fn resolve(
    processes: Processes,
    parts: &[PathBuf],
    scratch: &Path,
    config: &DeduplicationConfig,
    memory_bytes: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Duplicates> {
    let Some(parameters) = Parameters::from_config(config) else {
        return Ok(Duplicates {
            names_exact: false,
            exact: Bitmap::new(0),
            near: Bitmap::new(0),
            originals: None,
        });
    };
    let parts = Parts::open(parts, parameters)?;
    // Stages that visit every document: reading, merging and the last pass; near duplicates read and merge
    // once more.
    let stages = if parameters.bands == 0 { 3 } else { 4 + parameters.bands as u64 };
    let documents = parts.documents();
    let progress = Progress { done: 0, total: documents * stages, report: progress };
    let mut search =
        Search { processes, parts, scratch, memory_bytes, progress, exact: Bitmap::new(documents) };
    let copies = search.exact()?;
    for exact in processes.gather_bytes(search.exact.to_bytes())? {
        search.exact.merge(&Bitmap::from_bytes(&exact));
    }
    let copies = search.gather_pairs(copies)?;
    let pairs = search.candidates()?;
    let pairs = search.gather_pairs(pairs)?;
    let found = if processes.is_first() {
        Some(search.near_duplicates(copies, pairs, config.near_threshold.unwrap_or(1.0))?)
    } else {
        None
    };
    let (near, originals) = found.unzip();
    let all = processes.gather_bytes(near.as_ref().map(Bitmap::to_bytes).unwrap_or_default())?;
    let near = Bitmap::from_bytes(&all[0]);
    Ok(Duplicates { names_exact: config.exact, exact: search.exact, near, originals })
}

/// Bytes of pairs that a process sends to rank 0 at a time.
const SENT_BYTES: usize = 1 << 20;

struct Search<'a> {
    processes: Processes,
    parts: Parts,
    scratch: &'a Path,
    memory_bytes: usize,
    progress: Progress<'a>,
    exact: Bitmap,
}

impl Search<'_> {
    /// Finds equal texts among those whose hash belongs to this process; returns (copy, first) pairs.
    fn exact(&mut self) -> Result<Sorter<2>> {
        let mut hashes = Sorter::<3>::new(self.scratch, self.memory_bytes / 4 * 3);
        let processes = self.processes;
        let progress = &mut self.progress;
        self.parts.for_each(|index, record| {
            progress.advance();
            let hash = [u64_at(record, 0), u64_at(record, 8)];
            let is_own = hash[0] % processes.size as u64 == processes.rank as u64;
            if is_own { hashes.push([hash[0], hash[1], index]) } else { Ok(()) }
        })?;
        let mut sorted = hashes.finish(self.memory_bytes / 2)?;
        let mut copies = Sorter::new(self.scratch, self.memory_bytes / 8);
        let mut first: Option<[u64; 3]> = None;
        while let Some([high, low, index]) = sorted.next()? {
            progress.advance();
            match first {
                Some(first) if first[..2] == [high, low] => {
                    self.exact.set(index);
                    copies.push([index, first[2]])?;
                }
                _ => first = Some([high, low, index]),
            }
        }
        copies.park()?;
        Ok(copies)
    }

    /// Sends the pairs of all processes to rank 0; returns no pairs on the others.
    fn gather_pairs(&self, pairs: Sorter<2>) -> Result<Sorter<2>> {
        if !self.processes.is_shared() {
            return Ok(pairs);
        }
        let none = Sorter::new(self.scratch, self.memory_bytes / 8);
        let (own, mut all) = if self.processes.is_first() { (none, pairs) } else { (pairs, none) };
        let mut own = own.finish(self.memory_bytes / 8)?;
        loop {
            let mut bytes = Vec::new();
            while bytes.len() < SENT_BYTES
                && let Some([document, earlier]) = own.next()?
            {
                bytes.extend(document.to_le_bytes());
                bytes.extend(earlier.to_le_bytes());
            }
            let gathered = self.processes.gather_bytes(bytes)?;
            if gathered.iter().all(Vec::is_empty) {
                return Ok(all);
            }
            let pairs = gathered.iter().flat_map(|bytes| bytes.chunks_exact(2 * size_of::<u64>()));
            for pair in pairs.filter(|_| self.processes.is_first()) {
                all.push([u64_at(pair, 0), u64_at(pair, 8)])?;
            }
        }
    }

    /// Finds documents that share one of this process's bands, except for copies; returns (later, earlier)
    /// pairs.
    fn candidates(&mut self) -> Result<Sorter<2>> {
        let mut keys = Sorter::<2>::new(self.scratch, self.memory_bytes / 4 * 3);
        let bands = self.parts.parameters.bands;
        let mut pairs = Sorter::new(self.scratch, self.memory_bytes / 4);
        if bands == 0 {
            return Ok(pairs);
        }
        let processes = self.processes;
        let progress = &mut self.progress;
        let exact = &self.exact;
        self.parts.for_each(|index, record| {
            progress.advance();
            let bands = if exact.get(index) { 0 } else { bands };
            (processes.rank..bands)
                .step_by(processes.size)
                .try_for_each(|band| keys.push([u64_at(record, HASH_BYTES + band * KEY_BYTES), index]))
        })?;
        let mut sorted = keys.finish(self.memory_bytes / 2)?;
        let mut bucket = Bucket::new();
        while let Some(record) = sorted.next()? {
            progress.advance();
            bucket.push(record, &mut pairs)?;
        }
        Ok(pairs)
    }

    /// Visits the documents in order: a candidate is a near duplicate if it is similar to an earlier document
    /// that is kept.
    fn near_duplicates(
        &mut self,
        copies: Sorter<2>,
        pairs: Sorter<2>,
        threshold: f64,
    ) -> Result<(Bitmap, Originals)> {
        let documents = self.parts.documents();
        let mut near = Bitmap::new(documents);
        let mut originals = Originals::new(self.scratch)?;
        let mut copies = Groups::new(copies.finish(self.memory_bytes / 8)?)?;
        let mut pairs = Groups::new(pairs.finish(self.memory_bytes / 2)?)?;
        let mut comparer = Comparer::new(&mut self.parts, threshold);
        // A copy is never a candidate, so that a document is in at most one of the two.
        while let Some(document) = [copies.next_document(), pairs.next_document()].into_iter().flatten().min()
        {
            self.progress.set_left(documents - document);
            if let Some(first) = copies.take(document)?.first() {
                originals.push(document, *first)?;
                continue;
            }
            let earlier = pairs.take(document)?;
            if let Some(original) = comparer.original(document, earlier, &near, &originals)? {
                near.set(document);
                originals.push(document, original)?;
            }
        }
        self.progress.set_left(0);
        Ok((near, originals))
    }
}

/// Compares documents by the minima of their sketches.
struct Comparer<'a> {
    parts: &'a mut Parts,
    threshold: f64,
    later: Vec<u8>,
    earlier: Vec<u8>,
}

impl<'a> Comparer<'a> {
    fn new(parts: &'a mut Parts, threshold: f64) -> Self {
        let minima = vec![0; parts.parameters.permutations];
        Self { parts, threshold, later: minima.clone(), earlier: minima }
    }

    /// Returns the first kept candidate that is similar to `document`; if there is none, a similar document
    /// that a dropped candidate repeats.
    fn original(
        &mut self,
        document: u64,
        candidates: &[u64],
        near: &Bitmap,
        originals: &Originals,
    ) -> Result<Option<u64>> {
        self.parts.minima(document, &mut self.later)?;
        for candidate in candidates.iter().filter(|candidate| !near.get(**candidate)) {
            if self.is_similar(*candidate)? {
                return Ok(Some(*candidate));
            }
        }
        for candidate in candidates.iter().filter(|candidate| near.get(**candidate)) {
            if let Some(original) = originals.get(*candidate)?
                && !candidates.contains(&original)
                && self.is_similar(original)?
            {
                return Ok(Some(original));
            }
        }
        Ok(None)
    }

    fn is_similar(&mut self, earlier: u64) -> Result<bool> {
        self.parts.minima(earlier, &mut self.earlier)?;
        Ok(similarity(&self.later, &self.earlier) >= self.threshold)
    }
}

/// Sorted pairs, read in groups with the same first number.
struct Groups {
    sorted: Sorted<2>,
    next: Option<[u64; 2]>,
    group: Vec<u64>,
}

impl Groups {
    fn new(mut sorted: Sorted<2>) -> Result<Self> {
        Ok(Self { next: sorted.next()?, sorted, group: Vec::new() })
    }

    /// Returns the first number of the next pair.
    fn next_document(&self) -> Option<u64> {
        self.next.map(|pair| pair[0])
    }

    /// Takes the pairs whose first number is `document` and returns their second numbers, ascending; empty if
    /// the next pair has another first number.
    fn take(&mut self, document: u64) -> Result<&[u64]> {
        self.group.clear();
        while let Some([first, second]) = self.next
            && first == document
        {
            self.group.push(second);
            self.next = self.sorted.next()?;
        }
        Ok(&self.group)
    }
}

/// Number of advances between two reports.
const REPORT_STEPS: u64 = 1 << 14;

struct Progress<'a> {
    done: u64,
    total: u64,
    report: &'a mut dyn FnMut(u64, u64),
}

impl Progress<'_> {
    fn advance(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(REPORT_STEPS) {
            (self.report)(self.done, self.total);
        }
    }

    /// Sets the documents left in the last stage, which skips most documents.
    fn set_left(&mut self, left: u64) {
        let before = self.done / REPORT_STEPS;
        self.done = self.done.max(self.total - left);
        if left == 0 || self.done / REPORT_STEPS > before {
            (self.report)(self.done, self.total);
        }
    }
}
