//! Work plan of the GPU's attention, and of other ops that need a token's position: each block processes a
//! tile of rows of one segment.

use candle_core::Result;

use crate::cuda::{Array, Gpu, Values};
use crate::indices::Indices;

/// Number of rows of a tile.
pub(super) const TILE_ROWS: usize = 64;

/// Number of rows of a wide tile: see `tensor_wide.cuh`.
pub(super) const WIDE_TILE_ROWS: usize = 128;

/// Length of the longest segment whose gradients one block computes alone: see `tensor_short.cuh`.
pub(super) const SHORT_ROWS: u32 = 128;

/// Number of queries and of keys in a square, the unit in which dropout is decided and saved.
const SQUARE_ROWS: u32 = 16;
/// u32 words of a square's decisions, one bit for each pair of query and key: `kept_at` in `arguments.cuh`.
pub(super) const SQUARE_WORDS: usize = 8;

/// Returns the bytes in which a GPU saves, for backward, the dropout decisions of `tokens` tokens in segments
/// of `length` tokens, with `heads` heads.
pub fn kept_bytes(heads: u64, tokens: u64, length: u64) -> u64 {
    let segments = tokens.div_ceil(length.max(1));
    let across = length.div_ceil(SQUARE_ROWS.into());
    heads * segments * across.pow(2) * size_of::<[u32; SQUARE_WORDS]>() as u64
}

/// Tiles of all segments, followed by the wide tiles. In both, the longest segments come first, so that their
/// blocks, which take longest, are not the last to begin.
#[derive(Debug, Clone)]
pub struct TilesOnHost {
    bounds: Vec<[u32; 4]>,
    /// Number of tiles that are not wide.
    count: usize,
    squares: u64,
}

/// Returns the length of the longest segment, which the first tile belongs to.
fn longest(bounds: &[[u32; 4]]) -> u32 {
    bounds.first().map_or(0, |[start, end, ..]| end - start)
}

impl TilesOnHost {
    /// Computes the tiles of the segments between `cu_seqlens`.
    pub fn of(cu_seqlens: &[u32]) -> Self {
        let (mut bounds, squares) = tiles(cu_seqlens, TILE_ROWS);
        let count = bounds.len();
        bounds.extend(tiles(cu_seqlens, WIDE_TILE_ROWS).0);
        Self { bounds, count, squares }
    }

    /// Returns the array to upload.
    pub(crate) fn values(&self) -> Values<'_> {
        Values::U32(self.bounds.as_flattened())
    }
}

/// Tiles of all segments, on the GPU.
#[derive(Debug, Clone)]
pub struct Tiles {
    /// For each tile, start and end of the segment, first row of the tile (all as rows of the batch), and the
    /// number of squares in the segments before: u32, `[(count + wide) * 4]`.
    pub bounds: Array,
    /// Number of tiles.
    pub count: usize,
    /// Number of wide tiles.
    pub wide: usize,
    /// Number of squares per head, over all segments. A square is 16 queries by 16 keys; those at the end of
    /// a segment are cut off.
    pub squares: u64,
    /// Length of the longest segment.
    pub longest: u32,
}

impl Tiles {
    /// Returns the tiles that were uploaded together with `cu_seqlens`; otherwise computes and uploads them.
    pub(crate) fn of(gpu: &Gpu, cu_seqlens: Indices<'_>) -> Result<Self> {
        if let Some(tiles) = cu_seqlens.plan::<Self>() {
            return Ok(tiles.clone());
        }
        let tiles = TilesOnHost::of(cu_seqlens.host());
        Ok(Self::new(&tiles, gpu.send_one(tiles.values())?))
    }

    /// Combines the tiles with their uploaded array.
    pub(crate) fn new(tiles: &TilesOnHost, bounds: Array) -> Self {
        Self {
            bounds,
            count: tiles.count,
            wide: tiles.bounds.len() - tiles.count,
            squares: tiles.squares,
            longest: longest(&tiles.bounds),
        }
    }

    /// Returns true if wide tiles have few empty rows: warps of a block without rows only wait for the
    /// others.
    pub(super) fn are_wide_tiles_full(&self) -> bool {
        4 * self.wide <= 3 * self.count
    }
}

/// Returns the tiles of `rows` rows and the number of squares. If there are more squares than a u32 can
/// count, ops that save decisions per square must fail; other ops do not use the number.
fn tiles(cu_seqlens: &[u32], rows: usize) -> (Vec<[u32; 4]>, u64) {
    let mut segments: Vec<(u32, u32)> = cu_seqlens.windows(2).map(|w| (w[0], w[1])).collect();
    segments.sort_by_key(|(start, end)| std::cmp::Reverse(end - start));
    let mut bounds = Vec::new();
    let mut squares = 0u64;
    for (start, end) in segments {
        bounds.extend((start..end).step_by(rows).map(|row| [start, end, row, squares as u32]));
        squares += u64::from((end - start).div_ceil(SQUARE_ROWS)).pow(2);
    }
    (bounds, squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_tile_and_long_segments_come_first() {
        let (bounds, squares) = tiles(&[0, 3, 3, 133, 134], TILE_ROWS);
        assert_eq!(
            bounds,
            [[3, 133, 3, 0], [3, 133, 67, 0], [3, 133, 131, 0], [0, 3, 0, 81], [133, 134, 133, 82]]
        );
        assert_eq!((squares, tiles(&[0], TILE_ROWS)), (9 * 9 + 2, (vec![], 0)));
        assert_eq!((longest(&bounds), longest(&[])), (130, 0));
        let all = TilesOnHost::of(&[0, 3, 3, 133, 134]);
        assert_eq!((all.count, &all.bounds[..5]), (5, &bounds[..]));
        assert_eq!(all.bounds[5..], [[3, 133, 3, 0], [3, 133, 131, 0], [0, 3, 0, 81], [133, 134, 133, 82]]);
    }
}
