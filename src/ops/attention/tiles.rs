//! What each block of the GPU's attention works on, and of other ops that ask for a token's place: a tile of
//! rows of one segment.

use candle_core::Result;

use crate::cuda::Array;
use crate::cuda::Gpu;
use crate::cuda::Values;
use crate::indices::Indices;

/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 64;

/// Rows of a wide tile: `tensor_wide.cuh`.
pub(super) const WIDE_TILE_ROWS: usize = 128;

/// Rows of the longest segment for which one block computes all gradients: `tensor_short.cuh`.
pub(super) const SHORT_ROWS: u32 = 128;

/// Queries and keys of a square, for which dropout is decided and kept together.
const SQUARE_ROWS: u32 = 16;
/// u32 words of its decisions, a bit for each pair: `kept_at` in `kernel.cu`.
pub(super) const SQUARE_WORDS: usize = 8;

/// Bytes in which a GPU keeps, for backward, which probabilities of `tokens` tokens are dropped: segments of
/// `length` tokens, with so many heads.
pub fn kept_bytes(heads: u64, tokens: u64, length: u64) -> u64 {
    let (segments, across) = (tokens.div_ceil(length.max(1)), length.div_ceil(SQUARE_ROWS.into()));
    heads * segments * across.pow(2) * size_of::<[u32; SQUARE_WORDS]>() as u64
}

/// The tiles of all segments, the longest segments first, so that their blocks, which take longest, do not
/// begin last; after them the wide tiles in the same order.
#[derive(Debug, Clone)]
pub struct TilesOnHost {
    bounds: Vec<[u32; 4]>,
    /// Tiles that are not wide.
    count: usize,
    squares: u64,
}

/// Rows of the longest segment: that of the first tile.
fn longest(bounds: &[[u32; 4]]) -> u32 {
    bounds.first().map_or(0, |[start, end, ..]| end - start)
}

impl TilesOnHost {
    /// The tiles of the segments between `cu_seqlens`.
    pub fn of(cu_seqlens: &[u32]) -> Self {
        let (mut bounds, squares) = tiles(cu_seqlens, TILE_ROWS);
        let count = bounds.len();
        bounds.extend(tiles(cu_seqlens, WIDE_TILE_ROWS).0);
        Self { bounds, count, squares }
    }

    /// What is uploaded.
    pub(crate) fn values(&self) -> Values<'_> {
        Values::U32(self.bounds.as_flattened())
    }
}

/// The tiles of all segments, on the GPU.
#[derive(Debug, Clone)]
pub struct Tiles {
    /// Start and end of the segment, first row of the tile (all counted in the batch) and squares of the
    /// segments before, for each tile: u32, `[(count + wide) * 4]`.
    pub bounds: Array,
    /// Number of tiles.
    pub count: usize,
    /// Number of wide tiles.
    pub wide: usize,
    /// Squares of all segments, of each head: 16 queries by 16 keys, those at the end of a segment cut short.
    pub squares: u64,
    /// Rows of the longest segment.
    pub longest: u32,
}

impl Tiles {
    /// The plan that came with `cu_seqlens`; without one, it is made now.
    pub(crate) fn of(gpu: &Gpu, cu_seqlens: Indices<'_>) -> Result<Self> {
        if let Some(tiles) = cu_seqlens.plan::<Self>() {
            return Ok(tiles.clone());
        }
        let tiles = TilesOnHost::of(cu_seqlens.host());
        Ok(Self::new(&tiles, gpu.send_one(tiles.values())?))
    }

    /// The tiles with their array.
    pub(crate) fn new(tiles: &TilesOnHost, bounds: Array) -> Self {
        let (count, wide) = (tiles.count, tiles.bounds.len() - tiles.count);
        Self { count, wide, bounds, squares: tiles.squares, longest: longest(&tiles.bounds) }
    }

    /// Returns true if wide tiles are full enough: the warps of a block that have no rows wait for the
    /// others.
    pub(super) fn fill_wide_ones(&self) -> bool {
        4 * self.wide <= 3 * self.count
    }
}

/// The tiles of `rows` rows and the number of squares. More squares than a tile can count are an error of
/// the op that keeps something for each; the others do not look at them.
fn tiles(cu_seqlens: &[u32], rows: usize) -> (Vec<[u32; 4]>, u64) {
    let mut segments: Vec<(u32, u32)> = cu_seqlens.windows(2).map(|w| (w[0], w[1])).collect();
    segments.sort_by_key(|(start, end)| std::cmp::Reverse(end - start));
    let (mut bounds, mut squares) = (Vec::new(), 0u64);
    for (start, end) in segments {
        let tile = |row| [start, end, row, squares as u32];
        bounds.extend((start..end).step_by(rows).map(tile));
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
