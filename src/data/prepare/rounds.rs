//! Divides work on the kept documents between processes: all read the documents, in the same portions; in
//! each round, every process works on one portion, and rank 0 receives the results in the order of the
//! documents.

use anyhow::{Context, Result};

use crate::corpus::{KeptDocuments, Split};
use crate::prepare::portions;
use crate::prepare::portions::Kept;
use base::processes::Processes;

/// Work that is done on each portion of documents.
pub(super) trait Work {
    /// Input of the work on one portion.
    type Portion;
    /// Result of the work on one portion.
    type Made;

    /// Called in every process with every portion, in order; returns the input of the work on it.
    fn select(&mut self, portion: Vec<Kept>) -> Self::Portion;

    /// Works on a portion; called in one process.
    fn make(&self, portion: &Self::Portion) -> Result<Self::Made>;

    /// Takes the result of every portion, in order; called on rank 0.
    fn take(&mut self, portion: Self::Portion, made: Self::Made) -> Result<()>;

    /// Serializes a result of another process for rank 0.
    fn to_bytes(made: &Self::Made) -> Vec<u8>;

    /// Reads what [`Self::to_bytes`] wrote; `None` if the bytes are invalid.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Made>;
}

/// Does `work` on all kept documents from index `first` onwards.
pub(super) fn run<W: Work>(
    processes: Processes,
    kept: &KeptDocuments,
    split: Split,
    first: u64,
    work: &mut W,
) -> Result<()> {
    let mut waiting = Vec::with_capacity(processes.size);
    portions::for_each(kept, split, first, |portion| {
        waiting.push(work.select(portion));
        if waiting.len() < processes.size {
            Ok(())
        } else {
            round(processes, work, std::mem::take(&mut waiting))
        }
    })?;
    if waiting.is_empty() { Ok(()) } else { round(processes, work, waiting) }
}

fn round<W: Work>(processes: Processes, work: &mut W, portions: Vec<W::Portion>) -> Result<()> {
    let own = portions.get(processes.rank).map(|portion| work.make(portion)).transpose()?;
    if !processes.is_shared() {
        return portions.into_iter().zip(own).try_for_each(|(portion, made)| work.take(portion, made));
    }
    let all = processes.gather_bytes(own.as_ref().map(W::to_bytes).unwrap_or_default())?;
    if processes.is_first() {
        for (portion, bytes) in portions.into_iter().zip(&all) {
            work.take(portion, W::from_bytes(bytes).context("what another process made cannot be read")?)?;
        }
    }
    Ok(())
}
