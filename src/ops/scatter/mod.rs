//! Rows grouped by the row that they are added to, so that the GPU needs no float atomics and adds in an
//! order that depends on the ids alone.
//!
//! The host works that out beforehand. For ids that only the GPU has, the GPU does (`cuda.rs`): the same
//! groups, so the same sums to the last bit, but the host does not learn how many there are.

mod cuda;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use candle_core::Result;

use crate::computed::AnyIndices;
use crate::cuda::Array;
use crate::cuda::Gpu;
use crate::cuda::Values;

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

/// The groups on the GPU. Pieces and targets may be more than there are: those behind the last are empty.
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
    /// Number of pieces, or more.
    pub pieces: usize,
    /// Number of targets, or more.
    pub count: usize,
    /// Whether a target may have several pieces.
    pub splits: bool,
}

impl Scatter {
    /// The plan that came with `rows`, which has left out what gets nothing; without one, it is made now.
    pub(crate) fn of<'a>(
        gpu: &Gpu,
        rows: impl Into<AnyIndices<'a>>,
        skip: Option<u32>,
    ) -> Result<Cow<'a, Self>> {
        let rows = rows.into();
        let Some(known) = rows.known() else { return Self::of_unknown(gpu, rows, skip).map(Cow::Owned) };
        if let Some(plan) = known.plan() {
            return Ok(Cow::Borrowed(plan));
        }
        let groups = Groups::of(known.host(), skip);
        let arrays = gpu.send(&groups.values())?.try_into().expect("as many arrays come back as were sent");
        Ok(Cow::Owned(Self::new(&groups, arrays)))
    }

    /// The groups with their arrays.
    pub(super) fn new(groups: &Groups, arrays: [Array; 4]) -> Self {
        let [order, piece_starts, targets, target_pieces] = arrays;
        let (pieces, count) = (groups.piece_starts.len() - 1, groups.targets.len());
        Self { order, piece_starts, targets, target_pieces, pieces, count, splits: pieces > count }
    }

    /// The groups of rows that the host has not seen: there is a piece and a target for each at most.
    fn of_unknown(gpu: &Gpu, rows: AnyIndices<'_>, skip: Option<u32>) -> Result<Self> {
        let [order, piece_starts, targets, target_pieces] = cuda::groups(gpu, rows, skip)?;
        let array = |t| Array::of(gpu, t);
        Ok(Self {
            order: array(&order)?,
            piece_starts: array(&piece_starts)?,
            targets: array(&targets)?,
            target_pieces: array(&target_pieces)?,
            pieces: rows.len(),
            count: rows.len(),
            splits: rows.len() > PIECE_ROWS,
        })
    }
}
