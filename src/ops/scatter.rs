//! Groups source rows by the target row to which they are added, so that the GPU needs no float atomics and
//! the order of additions depends only on the ids.
//!
//! The host computes the groups in advance. For ids that only the GPU has, the GPU computes them (`cuda.rs`):
//! the groups, and thus the bits of the sums, are the same, but the host does not know how many groups there
//! are.

mod cuda;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use candle_core::Result;

use crate::computed::AnyIndices;
use crate::cuda::{Array, Gpu, Values};

/// Most source rows that one block sums. The rows of a target with more are split into pieces of this length,
/// whose sums are added in order.
pub const PIECE_ROWS: usize = 128;

/// The groups on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Indices of the source rows, sorted by target, then ascending.
    pub order: Vec<u32>,
    /// Start of each piece in `order`, followed by the end of the last.
    pub piece_starts: Vec<u32>,
    /// The target rows, ascending.
    pub targets: Vec<u32>,
    /// First piece of each target, followed by the number of pieces.
    pub target_pieces: Vec<u32>,
}

impl Groups {
    /// Groups the source rows by their target: `rows[i]` is the target of source row `i`. Source rows with
    /// the target `skip` are left out.
    pub fn new(rows: &[u32], skip: Option<u32>) -> Self {
        let mut order: Vec<u32> =
            (0..rows.len() as u32).filter(|&i| Some(rows[i as usize]) != skip).collect();
        // The sort is stable, so the source rows of one target stay in ascending order.
        order.sort_by_key(|&i| rows[i as usize]);
        let mut piece_starts = Vec::new();
        let mut targets = Vec::new();
        let mut target_pieces = Vec::new();
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

    /// The arrays to upload, in the order that [`Scatter::new`] expects.
    pub(super) fn values(&self) -> [Values<'_>; 4] {
        [&self.order, &self.piece_starts, &self.targets, &self.target_pieces]
            .map(|numbers| Values::U32(numbers))
    }
}

/// The groups on the GPU. If the GPU computed them, `pieces` and `count` are upper bounds, and the arrays are
/// padded with empty pieces and targets.
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
    /// Number of pieces, or an upper bound of it.
    pub pieces: usize,
    /// Number of targets, or an upper bound of it.
    pub count: usize,
    /// True if a target may have several pieces.
    pub splits: bool,
}

impl Scatter {
    /// Returns the plan that was uploaded with `rows`, which was made without the rows to skip. If there is
    /// none, makes it, on the GPU if the host does not have the numbers.
    pub(crate) fn planned_or_new<'a>(
        gpu: &Gpu,
        rows: impl Into<AnyIndices<'a>>,
        skip: Option<u32>,
    ) -> Result<Cow<'a, Self>> {
        let rows = rows.into();
        let Some(known) = rows.known() else { return Self::made_on_gpu(gpu, rows, skip).map(Cow::Owned) };
        if let Some(plan) = known.plan() {
            return Ok(Cow::Borrowed(plan));
        }
        let groups = Groups::new(known.host(), skip);
        let arrays = gpu.send(&groups.values())?.try_into().expect("as many arrays come back as were sent");
        Ok(Cow::Owned(Self::new(&groups, arrays)))
    }

    /// Combines the groups with their uploaded arrays, in the order of [`Groups::values`].
    pub(super) fn new(groups: &Groups, arrays: [Array; 4]) -> Self {
        let [order, piece_starts, targets, target_pieces] = arrays;
        let pieces = groups.piece_starts.len() - 1;
        let count = groups.targets.len();
        Self { order, piece_starts, targets, target_pieces, pieces, count, splits: pieces > count }
    }

    /// Computes the groups on the GPU, for numbers that the host does not have. There is at most one piece
    /// and one target for each row.
    fn made_on_gpu(gpu: &Gpu, rows: AnyIndices<'_>, skip: Option<u32>) -> Result<Self> {
        let [order, piece_starts, targets, target_pieces] = cuda::groups(gpu, rows, skip)?;
        Ok(Self {
            order: Array::of(gpu, &order)?,
            piece_starts: Array::of(gpu, &piece_starts)?,
            targets: Array::of(gpu, &targets)?,
            target_pieces: Array::of(gpu, &target_pieces)?,
            pieces: rows.len(),
            count: rows.len(),
            splits: rows.len() > PIECE_ROWS,
        })
    }
}
