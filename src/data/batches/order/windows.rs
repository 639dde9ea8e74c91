//! An order that stays within a few shards at a time, so that only those have to be on this disk.
//!
//! The shards are shuffled once for a run, over all sources, and divided into windows of a fixed number of
//! shards; every epoch visits the same windows and shuffles the documents of each again.

use std::ops::Range;
use std::sync::Arc;

use base::rng::{Permutation, Purpose, Stream};

/// Ids of streams within a window are above those of the epochs.
const WITHIN_WINDOW: u64 = 1 << 53;

/// Id of the stream that shuffles the shards.
const OF_SHARDS: u64 = 1 << 52;

/// Bits of a stream's id that count windows.
const WINDOW_BITS: u32 = 24;

/// The division of the documents into windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::batches) struct Windows {
    seed: u64,
    /// For each shard, in the order of the run, the place of its first document, and its documents.
    shards: Arc<[(u64, Range<u64>)]>,
    /// The first place of each window, followed by the number of places.
    starts: Arc<[u64]>,
}

impl Windows {
    /// Windows of `size` shards; `shards` are the documents of each shard.
    pub(super) fn new(seed: u64, size: usize, shards: &[Range<u64>]) -> Self {
        let shuffled = Permutation::new(Stream::new(seed, Purpose::Order, OF_SHARDS), shards.len() as u64);
        let mut place = 0;
        let mut starts = Vec::new();
        let mut placed = Vec::with_capacity(shards.len());
        for number in 0..shards.len() {
            if number % size == 0 {
                starts.push(place);
            }
            let documents = shards[shuffled.at(number as u64) as usize].clone();
            placed.push((place, documents.clone()));
            place += documents.end - documents.start;
        }
        starts.push(place);
        Self { seed, shards: placed.into(), starts: starts.into() }
    }

    /// The window of a place in an epoch.
    pub(in crate::batches) fn window_of(&self, place: u64) -> usize {
        self.starts.partition_point(|start| *start <= place).clamp(1, self.starts.len().max(2) - 1) - 1
    }

    /// The window after `window`; after the last one, the first window of the next epoch.
    pub(in crate::batches) fn after(&self, window: usize) -> usize {
        (window + 1) % (self.starts.len() - 1).max(1)
    }

    /// Number of windows.
    pub(in crate::batches) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The places of a window in an epoch.
    pub(in crate::batches) fn places(&self, window: usize) -> Range<u64> {
        self.starts[window]..self.starts[window + 1]
    }

    /// The documents of each shard of a window.
    pub(in crate::batches) fn shards(&self, window: usize) -> Vec<Range<u64>> {
        let inside = self.places(window);
        let shards =
            self.shards.iter().filter(|(place, documents)| inside.contains(place) && !documents.is_empty());
        shards.map(|(_, documents)| documents.clone()).collect()
    }

    /// One document of each shard of a window.
    pub(in crate::batches) fn documents(&self, window: usize) -> Vec<u64> {
        self.shards(window).into_iter().map(|documents| documents.start).collect()
    }

    /// The number of the chunk at place `index` of a window with `chunks` chunks.
    pub(in crate::batches) fn chunk(&self, epoch: u64, window: usize, chunks: u64, index: u64) -> u64 {
        Permutation::new(self.stream(Purpose::Chunks, epoch, window), chunks).at(index)
    }

    fn stream(&self, purpose: Purpose, epoch: u64, window: usize) -> Stream {
        Stream::new(self.seed, purpose, WITHIN_WINDOW | epoch << WINDOW_BITS | window as u64)
    }

    /// The document at `place` of `epoch`.
    pub(super) fn document(&self, epoch: u64, place: u64) -> u64 {
        let window = self.window_of(place);
        let Range { start, end } = self.places(window);
        let inside = Permutation::new(self.stream(Purpose::Order, epoch, window), end - start);
        let place = start + inside.at(place - start);
        let (first, documents) = &self.shards[self.shards.partition_point(|(first, _)| *first <= place) - 1];
        documents.start + (place - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards of 3, 0, 40, 1, 25, 7 and 11 documents.
    fn shards() -> Vec<Range<u64>> {
        let mut end = 0;
        let shards = [3, 0, 40, 1, 25, 7, 11].map(|documents| {
            end += documents;
            end - documents..end
        });
        shards.to_vec()
    }

    #[test]
    fn an_epoch_is_every_document_once_window_by_window() {
        let shards = shards();
        let windows = Windows::new(5, 3, &shards);
        let mut orders = Vec::new();
        for epoch in 0..3 {
            let order: Vec<u64> = (0..87).map(|place| windows.document(epoch, place)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..87).collect::<Vec<_>>());
            for window in 0..3 {
                let places = (0..87).filter(|place| windows.window_of(*place) == window);
                let mut touched: Vec<usize> =
                    places.map(|place| shard_of(&shards, order[place as usize])).collect();
                touched.sort_unstable();
                touched.dedup();
                let mut listed: Vec<usize> = windows
                    .documents(window)
                    .into_iter()
                    .map(|document| shard_of(&shards, document))
                    .collect();
                listed.sort_unstable();
                assert_eq!(touched, listed, "window {window}");
                assert!(listed.len() <= 3);
            }
            orders.push(order);
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2], "every epoch has an order of its own");
        assert_eq!([0, 1, 2].map(|window| windows.after(window)), [1, 2, 0]);
        // Another seed shuffles the shards differently; the end of an epoch still belongs to its last window.
        let first = windows.documents(0);
        assert!((0..9).any(|seed| Windows::new(seed, 3, &shards).documents(0) != first));
        assert_eq!(windows.window_of(87), 2);
    }

    /// The number of the shard with this document.
    fn shard_of(shards: &[Range<u64>], document: u64) -> usize {
        shards.iter().position(|shard| shard.contains(&document)).unwrap()
    }

    #[test]
    fn one_window_of_all_shards_shuffles_them_all() {
        let windows = Windows::new(5, 99, &shards());
        assert_eq!((windows.window_of(86), windows.after(0), windows.documents(0).len()), (0, 0, 6));
    }
}
