//! The documents as planning uses them: location and length, without tokens.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;

use crate::shards::{Place, ShardSet};

/// The documents that rows are planned from.
pub(super) trait Documents {
    /// The position of a document in the shards.
    type Place: Copy;

    /// The position of document `index`, and its number of tokens.
    fn locate(&self, index: u64) -> Result<(Self::Place, u64)>;

    /// As [`locate`](Self::locate), for `count` documents from `first` on, all within one of
    /// [`runs`](Self::runs).
    fn locate_run(&self, first: u64, count: u64) -> Result<Vec<(Self::Place, u64)>>;

    /// The position of a document of `tokens` tokens that begins `between` tokens after the document at
    /// `first`, in the same one of [`runs`](Self::runs).
    fn place_after(first: Self::Place, between: u64, tokens: u64) -> Self::Place;

    /// All documents, in ranges within which several are located at once.
    fn runs(&self) -> Vec<Range<u64>>;
}

impl Documents for Arc<ShardSet> {
    type Place = Place;

    fn locate(&self, index: u64) -> Result<(Place, u64)> {
        let place = ShardSet::locate(self, index)?;
        Ok((place, place.len))
    }

    fn locate_run(&self, first: u64, count: u64) -> Result<Vec<(Place, u64)>> {
        let places = ShardSet::locate_run(self, first, count)?;
        Ok(places.into_iter().map(|place| (place, place.len)).collect())
    }

    fn place_after(first: Place, between: u64, tokens: u64) -> Place {
        first.after(between, tokens)
    }

    fn runs(&self) -> Vec<Range<u64>> {
        self.ranges()
    }
}

/// Only the lengths of documents, to simulate an epoch.
pub(super) struct Lengths {
    lengths: Vec<u32>,
    /// The documents of each shard.
    shards: Vec<Range<u64>>,
}

impl Lengths {
    /// The lengths of all documents of `shards`.
    pub(super) fn new(shards: &ShardSet) -> Result<Self> {
        Ok(Self { lengths: shards.lengths()?, shards: shards.ranges() })
    }
}

impl Documents for Lengths {
    type Place = ();

    fn locate(&self, index: u64) -> Result<((), u64)> {
        Ok(((), u64::from(self.lengths[index as usize])))
    }

    fn locate_run(&self, first: u64, count: u64) -> Result<Vec<((), u64)>> {
        let lengths = &self.lengths[first as usize..(first + count) as usize];
        Ok(lengths.iter().map(|length| ((), u64::from(*length))).collect())
    }

    fn place_after((): (), _: u64, _: u64) {}

    fn runs(&self) -> Vec<Range<u64>> {
        self.shards.clone()
    }
}
