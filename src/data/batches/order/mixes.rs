//! The order of documents if the weights of sources change during a run.
//!
//! Each epoch of a later mix determines which source is next, and every source continues from its position in
//! the endless order of the *first* mix. So all documents of a source occur equally often, whatever the mixes
//! are, and what a run reads before its first change is what it would read without one.

use crate::batches::order::{Seeded, Sequence};

impl Sequence {
    /// Number of sources.
    pub(in crate::batches) fn num_sources(&self) -> usize {
        self.sources
    }

    /// The source at place `index` of `epoch`.
    pub(in crate::batches) fn source(&self, epoch: u64, index: u64) -> usize {
        self.share(self.place(epoch, index)).source as usize
    }

    /// The position of each source if this, the first mix, ends at place `index` of `epoch`.
    pub(in crate::batches) fn positions(&self, epoch: u64, index: u64) -> Vec<u64> {
        let mut positions = vec![0; self.sources];
        for share in self.shares.iter().filter(|share| share.places > 0) {
            positions[share.source as usize] = epoch * self.places + index;
        }
        positions
    }

    /// The next document of `source` from `position` on in the endless order of this, the first mix, and the
    /// position after it. A source that the first mix leaves out has a separate order.
    pub(in crate::batches) fn next_of(&self, source: usize, position: u64) -> (u64, u64) {
        let mut shares = self.shares.iter();
        let share = shares
            .find(|share| share.source == source as u64)
            .expect("a mix draws from sources with documents");
        if share.places == 0 {
            let seeded = Seeded { seed: self.seed.unwrap_or(0), purpose: self.purpose };
            return (share.numbered(seeded, u128::from(position)), position + 1);
        }
        let mut position = position;
        loop {
            let epoch = position / self.places;
            let index = position % self.places;
            let place = self.place(epoch, index);
            position += 1;
            if (share.first_place..share.first_place + share.places).contains(&place) {
                return (share.document(self.seeded(), epoch, place), position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::batches::{Order, Sequence};
    use crate::shards::SourceRange;

    /// Two sources of 30 and 12 documents, and an empty source between them.
    fn mix(weights: [f64; 3]) -> Sequence {
        let sources =
            [("web", 0, 30), ("none", 30, 0), ("books", 30, 12)].map(|(name, first_document, documents)| {
                SourceRange { name: name.to_string(), first_document, documents, tokens: 10 * documents }
            });
        Order::Weighted { seed: 5, weights: weights.into() }.sequence(&sources).unwrap()
    }

    /// Counts each document in `first` up to place 17 of its epoch 1, and in `count` places of `later` after
    /// it.
    fn counts(first: &Sequence, later: &Sequence, count: u64) -> Vec<u32> {
        let of_first = (0..first.places()).map(|index| first.document(0, index));
        let mut taken: Vec<u64> = of_first.chain((0..17).map(|index| first.document(1, index))).collect();
        let mut positions = first.positions(1, 17);
        for number in 0..count {
            let source = later.source(2 + number / later.places(), number % later.places());
            let (document, position) = first.next_of(source, positions[source]);
            positions[source] = position;
            taken.push(document);
        }
        let mut counts = vec![0; 42];
        for document in taken {
            counts[document as usize] += 1;
        }
        counts
    }

    #[test]
    fn every_document_of_a_source_comes_equally_often_across_a_change() {
        // If an epoch of the first mix takes a source twice, it shuffles both passes together.
        for (first, later, most_apart) in [
            ([1.0, 1.0, 1.0], [0.5, 1.0, 3.0], 1),
            ([0.5, 1.0, 0.3], [1.0, 1.0, 2.0], 1),
            ([2.0, 1.0, 1.0], [1.0, 1.0, 0.5], 2),
        ] {
            let first = mix(first);
            let later = mix(later);
            for count in 0..300 {
                let counts = counts(&first, &later, count);
                for source in [&counts[..30], &counts[30..]] {
                    let least = source.iter().min().unwrap();
                    let most = source.iter().max().unwrap();
                    assert!(most - least <= most_apart, "after {count}: {counts:?}");
                }
            }
        }
    }

    #[test]
    fn a_source_may_be_left_out_and_come_only_later() {
        let without = mix([1.0, 0.0, 0.0]);
        let with = mix([0.0, 0.0, 1.0]);
        assert_eq!((without.places(), with.places()), (30, 12));
        let counts = counts(&without, &with, 24);
        assert_eq!(counts[..30].iter().sum::<u32>(), 30 + 17);
        assert_eq!(counts[30..], [2; 12], "two passes over the books, and nothing of the web");
        let positions = without.positions(1, 17);
        assert_eq!((positions.as_slice(), without.num_sources()), (&[47, 0, 0][..], 3));
    }
}
