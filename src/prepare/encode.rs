//! Kept documents with their token ids, in order.

use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;

use crate::corpus::KeptDocuments;
use crate::corpus::Split;
use crate::distributed::World;
use crate::prepare::portions::Kept;
use crate::prepare::rounds;
use crate::prepare::rounds::Work;
use crate::tokenizer::Tokenizer;

/// Which documents are to be encoded.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) split: Split,
    /// Index of the first document of each side that is not done.
    pub(super) first: [u64; 2],
}

/// Calls `take` in the first process with each portion of the documents and their ids.
pub(super) fn for_each(
    world: World,
    kept: &KeptDocuments,
    task: Task,
    tokenizer: &Tokenizer,
    take: impl FnMut(&[Kept], &[Vec<u32>]) -> Result<()>,
) -> Result<()> {
    let first = task.first[0].min(task.first[1]);
    rounds::run(world, kept, task.split, first, &mut Encoder { task, tokenizer, take })
}

/// Encodes with the first process, by its tokenizer in this folder.
pub(super) fn help(world: World, kept: &KeptDocuments, tokenizer: &Path) -> Result<()> {
    let task = world.from_first(None)?;
    for_each(world, kept, task, &Tokenizer::load(tokenizer)?, |_, _| Ok(()))
}

struct Encoder<'a, F> {
    task: Task,
    tokenizer: &'a Tokenizer,
    take: F,
}

impl<F: FnMut(&[Kept], &[Vec<u32>]) -> Result<()>> Work for Encoder<'_, F> {
    type Portion = Vec<Kept>;
    type Made = Vec<Vec<u32>>;

    fn see(&mut self, mut portion: Vec<Kept>) -> Vec<Kept> {
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

/// The number of each document's ids before them, in little-endian words.
fn to_bytes(documents: &[Vec<u32>]) -> Vec<u8> {
    let words = documents.iter().flat_map(|ids| std::iter::once(ids.len() as u32).chain(ids.iter().copied()));
    words.flat_map(u32::to_le_bytes).collect()
}

/// None where the bytes are not of [`to_bytes`].
fn from_bytes(bytes: &[u8]) -> Option<Vec<Vec<u32>>> {
    let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let (mut rest, mut documents) = (words.as_slice(), Vec::new());
    while let Some((&len, behind)) = rest.split_first() {
        let (ids, behind) = behind.split_at_checked(len as usize)?;
        documents.push(ids.to_vec());
        rest = behind;
    }
    Some(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_and_what_is_cut_is_refused() {
        for documents in [vec![], vec![vec![]], vec![vec![7, 1 << 20], vec![], vec![3]]] {
            assert_eq!(from_bytes(&to_bytes(&documents)), Some(documents));
        }
        assert_eq!(from_bytes(&to_bytes(&[vec![7, 8]])[..8]), None);
    }
}
