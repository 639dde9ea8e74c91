//! Work on the kept documents that several processes divide: all read them, in the same portions; each works on a
//! portion of every round, and the first one takes what all have made, in the order of the documents.

use anyhow::Context;
use anyhow::Result;

use crate::corpus::KeptDocuments;
use crate::corpus::Split;
use crate::distributed::World;
use crate::prepare::portions;
use crate::prepare::portions::Kept;

/// What is done with portions.
pub(super) trait Work {
    /// What is worked on of a portion.
    type Portion;
    /// What is made of it.
    type Made;

    /// Sees every portion, in order, in every process.
    fn see(&mut self, portion: Vec<Kept>) -> Self::Portion;

    /// Works on a portion, in one process.
    fn make(&self, portion: &Self::Portion) -> Result<Self::Made>;

    /// Takes what was made of every portion, in order, in the first process.
    fn take(&mut self, portion: Self::Portion, made: Self::Made) -> Result<()>;

    /// For the first process, where another one made it.
    fn to_bytes(made: &Self::Made) -> Vec<u8>;

    /// None where the bytes are not of [`Self::to_bytes`].
    fn from_bytes(bytes: &[u8]) -> Option<Self::Made>;
}

/// Does `work` on all kept documents from index `first` on.
pub(super) fn run<W: Work>(
    world: World,
    kept: &KeptDocuments,
    split: Split,
    first: u64,
    work: &mut W,
) -> Result<()> {
    let mut waiting = Vec::with_capacity(world.size);
    portions::for_each(kept, split, first, |portion| {
        waiting.push(work.see(portion));
        if waiting.len() < world.size { Ok(()) } else { round(world, work, std::mem::take(&mut waiting)) }
    })?;
    if waiting.is_empty() { Ok(()) } else { round(world, work, waiting) }
}

fn round<W: Work>(world: World, work: &mut W, portions: Vec<W::Portion>) -> Result<()> {
    let own = portions.get(world.rank).map(|portion| work.make(portion)).transpose()?;
    if !world.is_shared() {
        return portions.into_iter().zip(own).try_for_each(|(portion, made)| work.take(portion, made));
    }
    let all = world.gather_bytes(own.as_ref().map(W::to_bytes).unwrap_or_default())?;
    if world.is_first() {
        for (portion, bytes) in portions.into_iter().zip(&all) {
            work.take(portion, W::from_bytes(bytes).context("what another process made cannot be read")?)?;
        }
    }
    Ok(())
}
