//! What each block of the GPU's attention works on, and of other ops that ask for a token's place: a tile of
//! rows of one segment.

use candle_core::Result;

use crate::ops::cuda::Array;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Values;
use crate::ops::indices::Indices;

/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 64;

/// The tiles of all segments, the longest segments first, so that their blocks, which take longest, do not
/// begin last.
#[derive(Debug, Clone)]
pub struct TilesOnHost(Vec<[u32; 3]>);

impl TilesOnHost {
    /// The tiles of the segments between `cu_seqlens`.
    pub fn of(cu_seqlens: &[u32]) -> Self {
        Self(tiles(cu_seqlens))
    }

    /// What is uploaded.
    pub(in crate::ops) fn values(&self) -> Values<'_> {
        Values::U32(self.0.as_flattened())
    }
}

/// The tiles of all segments, on the GPU.
#[derive(Debug, Clone)]
pub struct Tiles {
    /// Start and end of the segment and first row of the tile (counted in the batch) for each tile: u32,
    /// `[tiles * 3]`.
    pub bounds: Array,
    /// Number of tiles.
    pub count: usize,
}

impl Tiles {
    /// The plan that came with `cu_seqlens`; without one, it is made now.
    pub(in crate::ops) fn of(gpu: &Gpu, cu_seqlens: Indices<'_>) -> Result<Self> {
        if let Some(tiles) = cu_seqlens.plan::<Self>() {
            return Ok(tiles.clone());
        }
        let tiles = TilesOnHost::of(cu_seqlens.host());
        Ok(Self::new(&tiles, gpu.send_one(tiles.values())?))
    }

    /// The tiles with their array.
    pub(in crate::ops) fn new(tiles: &TilesOnHost, bounds: Array) -> Self {
        Self { count: tiles.0.len(), bounds }
    }
}

fn tiles(cu_seqlens: &[u32]) -> Vec<[u32; 3]> {
    let mut segments: Vec<(u32, u32)> = cu_seqlens.windows(2).map(|w| (w[0], w[1])).collect();
    segments.sort_by_key(|(start, end)| std::cmp::Reverse(end - start));
    let tiles_of =
        |(start, end): (u32, u32)| (start..end).step_by(TILE_ROWS).map(move |row| [start, end, row]);
    segments.into_iter().flat_map(tiles_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_tile_and_long_segments_come_first() {
        assert_eq!(
            tiles(&[0, 3, 3, 133, 134]),
            [[3, 133, 3], [3, 133, 67], [3, 133, 131], [0, 3, 0], [133, 134, 133]]
        );
        assert!(tiles(&[0]).is_empty());
    }
}
