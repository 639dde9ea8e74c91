//! Rows grouped by the row that they are added to, worked out on the host so that the GPU needs no float
//! atomics and adds in an order that depends on the ids alone.

use std::borrow::Cow;

use candle_core::Result;

use crate::ops::cuda::Array;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Values;
use crate::ops::indices::Indices;

/// Rows of one target that are summed by one block: more are cut into pieces, whose sums are added in order.
pub const PIECE_ROWS: usize = 128;

/// The groups on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Numbers of the source rows: those of one target side by side, in ascending order; targets ascend,
    /// too.
    pub order: Vec<u32>,
    /// Bounds of each piece in `order`, and their end.
    pub piece_starts: Vec<u32>,
    /// The rows that are added to.
    pub targets: Vec<u32>,
    /// Bounds of the pieces of each target, and their end.
    pub target_pieces: Vec<u32>,
}

impl Groups {
    /// The groups of `rows`, without those that are `skip`.
    pub fn of(rows: &[u32], skip: Option<u32>) -> Self {
        let mut order: Vec<u32> =
            (0..rows.len() as u32).filter(|&i| Some(rows[i as usize]) != skip).collect();
        // Stable: sources of one target stay in their order.
        order.sort_by_key(|&i| rows[i as usize]);
        let (mut piece_starts, mut targets, mut target_pieces) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for group in order.chunk_by(|&a, &b| rows[a as usize] == rows[b as usize]) {
            targets.push(rows[group[0] as usize]);
            target_pieces.push(piece_starts.len() as u32);
            piece_starts.extend((0..group.len()).step_by(PIECE_ROWS).map(|piece| (start + piece) as u32));
            start += group.len();
        }
        target_pieces.push(piece_starts.len() as u32);
        piece_starts.push(start as u32);
        Self { order, piece_starts, targets, target_pieces }
    }

    /// What is uploaded, in the order that [`Scatter::new`] wants.
    pub(super) fn values(&self) -> [Values<'_>; 4] {
        [&self.order, &self.piece_starts, &self.targets, &self.target_pieces]
            .map(|numbers| Values::U32(numbers))
    }
}

/// The groups on the GPU.
#[derive(Debug, Clone)]
pub struct Scatter {
    /// `Groups::order`, u32.
    pub order: Array,
    /// `Groups::piece_starts`, u32.
    pub piece_starts: Array,
    /// `Groups::targets`, u32.
    pub targets: Array,
    /// `Groups::target_pieces`, u32.
    pub target_pieces: Array,
    /// Number of pieces.
    pub pieces: usize,
    /// Number of targets.
    pub count: usize,
}

impl Scatter {
    /// The plan that came with `rows`, which has left out what gets nothing; without one, it is made now.
    pub(in crate::ops) fn of<'a>(gpu: &Gpu, rows: Indices<'a>, skip: Option<u32>) -> Result<Cow<'a, Self>> {
        if let Some(plan) = rows.plan() {
            return Ok(Cow::Borrowed(plan));
        }
        let groups = Groups::of(rows.host(), skip);
        let arrays = gpu.send(&groups.values())?.try_into().expect("as many arrays come back as were sent");
        Ok(Cow::Owned(Self::new(&groups, arrays)))
    }

    /// The groups with their arrays.
    pub(super) fn new(groups: &Groups, arrays: [Array; 4]) -> Self {
        let [order, piece_starts, targets, target_pieces] = arrays;
        let (pieces, count) = (groups.piece_starts.len() - 1, groups.targets.len());
        Self { order, piece_starts, targets, target_pieces, pieces, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_target_stand_together_in_their_order() {
        let groups = Groups::of(&[7, 2, 7, 9, 2, 7], Some(9));
        assert_eq!(groups.order, [1, 4, 0, 2, 5]);
        assert_eq!((groups.targets, groups.target_pieces), (vec![2, 7], vec![0, 1, 2]));
        assert_eq!(groups.piece_starts, [0, 2, 5]);
    }

    #[test]
    fn long_groups_are_cut_and_none_is_lost() {
        let rows = vec![3; 2 * PIECE_ROWS + 5];
        let groups = Groups::of(&rows, None);
        assert_eq!(groups.piece_starts, [0, 128, 256, 261]);
        assert_eq!((groups.targets, groups.target_pieces), (vec![3], vec![0, 3]));
        let none = Groups::of(&[1, 1], Some(1));
        assert_eq!((none.order.len(), none.piece_starts, none.target_pieces), (0, vec![0], vec![0]));
    }
}
