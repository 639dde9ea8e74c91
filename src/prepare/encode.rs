//! Kept documents with their token ids, in order.
//!
//! Several processes read them all, in the same portions; each encodes a portion of every round, and the first one
//! gets the ids of all.

use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use serde::Deserialize;
use serde::Serialize;

use crate::corpus::KeptDocuments;
use crate::corpus::Split;
use crate::distributed::World;
use crate::prepare::portions;
use crate::prepare::portions::Kept;
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
    mut take: impl FnMut(&[Kept], &[Vec<u32>]) -> Result<()>,
) -> Result<()> {
    let mut round = |portions: &[Vec<Kept>]| -> Result<()> {
        let own = portions.get(world.rank).map_or(&[][..], Vec::as_slice);
        let texts: Vec<&str> = own.iter().map(|kept| kept.document.text.as_str()).collect();
        let all = world.gather_bytes(to_bytes(&tokenizer.encode_corpus(&texts)?))?;
        if world.is_first() {
            for (portion, bytes) in portions.iter().zip(&all) {
                let ids = from_bytes(bytes).filter(|ids| ids.len() == portion.len());
                take(portion, &ids.context("processes read other documents")?)?;
            }
        }
        Ok(())
    };
    let mut waiting = Vec::with_capacity(world.size);
    let first = task.first[0].min(task.first[1]);
    portions::for_each(kept, task.split, first, |mut portion| {
        portion.retain(|kept| kept.index >= task.first[kept.side as usize]);
        waiting.push(portion);
        if waiting.len() < world.size {
            return Ok(());
        }
        round(&std::mem::take(&mut waiting))
    })?;
    if waiting.is_empty() { Ok(()) } else { round(&waiting) }
}

/// Encodes with the first process, from its folders of documents and of the tokenizer.
pub(super) fn help(world: World, documents: &Path, tokenizer: &Path) -> Result<()> {
    let task = world.from_first(None)?;
    let kept = KeptDocuments::from_first(world, documents)?;
    for_each(world, &kept, task, &Tokenizer::load(tokenizer)?, |_, _| Ok(()))
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
