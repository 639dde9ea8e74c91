//! Places the pieces of a window of documents into rows, best-fit-decreasing.
//!
//! Each piece, longest first, goes into the row with the least room that is enough (Johnson, "Fast algorithms
//! for bin packing", 1974; for language models Ding et al., ICML 2024). Only documents longer than a row are
//! cut.

use std::collections::BTreeSet;

use base::rng::{Permutation, Stream};

/// Special tokens around a piece.
const SPECIAL: u64 = 2;

/// A contiguous part of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<P> {
    /// The location of the document in the shards.
    pub(super) place: P,
    /// Tokens of the whole document.
    pub(super) document_tokens: u64,
    /// Tokens of the document before the piece.
    pub(super) from: u64,
    /// Tokens of the piece, at least 1.
    pub(super) count: u64,
}

impl<P: PartialEq> Piece<P> {
    /// Returns true if `next` is the part of the same document right after this one.
    pub(super) fn is_followed_by(&self, next: &Self) -> bool {
        self.place == next.place && self.from + self.count == next.from
    }
}

/// The rows of a window of documents.
#[derive(Debug)]
pub(super) struct Window<P> {
    /// Number of documents in the window, in the order of the epoch.
    pub(super) documents: u64,
    /// Pieces, ordered by row.
    pieces: Vec<Piece<P>>,
    /// Start and end of each row in `pieces`, in the order of the rows.
    rows: Vec<(u32, u32)>,
}

impl<P: Copy> Window<P> {
    /// Plans rows of at most `max_seq_length` tokens of these documents or parts of them; `shuffle` gives the
    /// order of the rows.
    pub(super) fn plan(whole: &[Piece<P>], max_seq_length: u64, shuffle: Option<Stream>) -> Self {
        let (pieces, row_of, rows) = place(whole, max_seq_length);
        let mut starts = vec![0u32; rows + 1];
        for &row in &row_of {
            starts[row as usize + 1] += 1;
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let mut by_row: Vec<u32> = (0..pieces.len() as u32).collect();
        by_row.sort_by_key(|&piece| row_of[piece as usize]);
        let permutation = shuffle.map(|stream| Permutation::new(stream, rows as u64));
        let order = (0..rows).map(|row| permutation.map_or(row, |p| p.at(row as u64) as usize));
        let rows = order.map(|row| (starts[row], starts[row + 1])).collect();
        let documents = whole.len() as u64;
        Self { documents, pieces: by_row.into_iter().map(|piece| pieces[piece as usize]).collect(), rows }
    }

    /// The pieces of row `number`; `None` after the last one.
    pub(super) fn row(&self, number: u64) -> Option<&[Piece<P>]> {
        let (start, end) = *self.rows.get(usize::try_from(number).ok()?)?;
        Some(&self.pieces[start as usize..end as usize])
    }

    /// Number of rows of the window.
    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }
}

/// Returns the pieces, the row of each, and the number of rows.
fn place<P: Copy>(whole: &[Piece<P>], max_seq_length: u64) -> (Vec<Piece<P>>, Vec<u32>, usize) {
    let most = max_seq_length - SPECIAL;
    let mut pieces = Vec::new();
    let mut ends = Vec::new();
    for stretch in whole {
        let mut left = stretch.count;
        while left > 0 {
            let count = most.min(left);
            let list = if count == most { &mut pieces } else { &mut ends };
            list.push(Piece { from: stretch.from + stretch.count - left, count, ..*stretch });
            left -= count;
        }
    }
    // A piece that fills a row gets a row of its own. The sort is stable: equal pieces keep the order of
    // their documents.
    let mut row_of: Vec<u32> = (0..pieces.len() as u32).collect();
    let mut rows = pieces.len();
    ends.sort_by_key(|piece| std::cmp::Reverse(piece.count));
    let mut rooms: BTreeSet<(u64, u32)> = BTreeSet::new();
    for piece in ends {
        let need = piece.count + SPECIAL;
        let best = rooms.range((need, 0)..).next().copied();
        let (room, row) = best.unwrap_or((max_seq_length, rows as u32));
        if best.is_none_or(|found| !rooms.remove(&found)) {
            rows += 1;
        }
        if room - need > SPECIAL {
            rooms.insert((room - need, row));
        }
        row_of.push(row);
        pieces.push(piece);
    }
    (pieces, row_of, rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use base::rng::Purpose;

    fn whole<P>(place: P, tokens: u64) -> Piece<P> {
        Piece { place, document_tokens: tokens, from: 0, count: tokens }
    }

    #[test]
    fn pieces_go_where_they_fit_best() {
        // Rows of 12 places, 10 of them for text: 25 tokens are 10 + 10 + 5, and 5 + 2 leave room for 3 + 2.
        let window =
            Window::plan(&[('a', 25), ('b', 3), ('c', 8), ('d', 2)].map(|(at, n)| whole(at, n)), 12, None);
        let rows: Vec<Vec<(char, u64, u64)>> = (0..window.len())
            .map(|row| window.row(row).unwrap().iter().map(|p| (p.place, p.from, p.count)).collect())
            .collect();
        assert_eq!(
            rows,
            [
                vec![('a', 0, 10)],
                vec![('a', 10, 10)],
                vec![('c', 0, 8)],
                vec![('a', 20, 5), ('b', 0, 3)],
                vec![('d', 0, 2)]
            ]
        );
        assert!(window.row(5).is_none());
    }

    proptest! {
        #[test]
        fn every_token_is_placed_once_and_no_row_is_too_long(lengths in prop::collection::vec(0u64..80, 0..60), length in 3u64..40, seed: u64) {
            let whole: Vec<Piece<usize>> = lengths.iter().enumerate().map(|(at, n)| whole(at, *n)).collect();
            let stream = Stream::new(seed, Purpose::Order, 1);
            let window = Window::plan(&whole, length, Some(stream));
            let mut covered: Vec<Vec<bool>> = lengths.iter().map(|n| vec![false; *n as usize]).collect();
            for row in 0..window.len() {
                let pieces = window.row(row).unwrap();
                prop_assert!(!pieces.is_empty());
                prop_assert!(pieces.iter().map(|p| p.count + 2).sum::<u64>() <= length);
                for piece in pieces {
                    prop_assert!(piece.count > 0);
                    for token in piece.from..piece.from + piece.count {
                        prop_assert!(!std::mem::replace(&mut covered[piece.place][token as usize], true));
                    }
                }
            }
            prop_assert!(covered.iter().flatten().all(|c| *c));
        }
    }
}
