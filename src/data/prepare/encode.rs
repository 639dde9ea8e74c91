//! Encodes the kept documents with a tokenizer, in order; several processes divide the work.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::corpus::{KeptDocuments, Split};
use crate::prepare::portions::Kept;
use crate::prepare::rounds;
use crate::prepare::rounds::Work;
use crate::tokenizer::Tokenizer;
use base::processes::Processes;

/// Documents that remain to be encoded. Rank 0 decides it and sends it to the other processes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) split: Split,
    /// For each side, the index of its first document that is not done.
    pub(super) first: [u64; 2],
}

/// Encodes the documents of `task` and calls `take` on rank 0 with each portion of them and their ids.
pub(super) fn for_each(
    processes: Processes,
    kept: &KeptDocuments,
    task: Task,
    tokenizer: &Tokenizer,
    take: impl FnMut(&[Kept], &[Vec<u32>]) -> Result<()>,
) -> Result<()> {
    let first = task.first[0].min(task.first[1]);
    rounds::run(processes, kept, task.split, first, &mut Encoder { task, tokenizer, take })
}

/// Encodes this process's share of the portions, while rank 0 calls [`for_each`]. `tokenizer` is the folder
/// of the tokenizer that rank 0 uses.
pub(super) fn help(processes: Processes, kept: &KeptDocuments, tokenizer: &Path) -> Result<()> {
    let task = processes.from_first(None)?;
    for_each(processes, kept, task, &Tokenizer::load(tokenizer)?, |_, _| Ok(()))
}

struct Encoder<'a, F> {
    task: Task,
    tokenizer: &'a Tokenizer,
    take: F,
}

impl<F: FnMut(&[Kept], &[Vec<u32>]) -> Result<()>> Work for Encoder<'_, F> {
    type Portion = Vec<Kept>;
    type Made = Vec<Vec<u32>>;

    fn select(&mut self, mut portion: Vec<Kept>) -> Vec<Kept> {
        portion.retain(|kept| kept.index >= self.task.first[kept.side as usize]);
        portion
    }

    fn make(&self, portion: &Vec<Kept>) -> Result<Vec<Vec<u32>>> {
        let texts: Vec<&str> = portion.iter().map(|kept| kept.document.text.as_str()).collect();
        self.tokenizer.encode_corpus(&texts)
    }

    fn take(&mut self, portion: Vec<Kept>, made: Vec<Vec<u32>>) -> Result<()> {
        let ids = Some(made).filter(|ids| ids.len() == portion.len());
        (self.take)(&portion, &ids.context("processes read other documents")?)
    }

    fn to_bytes(made: &Vec<Vec<u32>>) -> Vec<u8> {
        to_bytes(made)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Vec<Vec<u32>>> {
        from_bytes(bytes)
    }
}

/// Serializes ids: for each document its number of ids, then the ids, all as little-endian `u32`.
fn to_bytes(documents: &[Vec<u32>]) -> Vec<u8> {
    let words = documents.iter().flat_map(|ids| std::iter::once(ids.len() as u32).chain(ids.iter().copied()));
    words.flat_map(u32::to_le_bytes).collect()
}

/// Reads what [`to_bytes`] wrote; `None` if the bytes are cut short.
fn from_bytes(bytes: &[u8]) -> Option<Vec<Vec<u32>>> {
    let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut rest = words.as_slice();
    let mut documents = Vec::new();
    while let Some((&len, tail)) = rest.split_first() {
        let (ids, tail) = tail.split_at_checked(len as usize)?;
        documents.push(ids.to_vec());
        rest = tail;
    }
    Some(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_truncated_bytes_are_rejected() {
        for documents in [vec![], vec![vec![]], vec![vec![7, 1 << 20], vec![], vec![3]]] {
            assert_eq!(from_bytes(&to_bytes(&documents)), Some(documents));
        }
        assert_eq!(from_bytes(&to_bytes(&[vec![7, 8]])[..8]), None);
    }
}
