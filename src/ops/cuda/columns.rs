//! Partition of a matrix over the blocks and lanes of element-wise kernels: see `kernels/columns.cuh`.

use super::Grid;
use super::sums::RowBlocks;

/// Warps per block, which process the block's rows in turns.
pub(crate) const WARPS: usize = 8;

/// Same layout as `Columns` in `kernels/columns.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Columns {
    rows: i64,
    cols: i64,
    stride: i64,
    block_rows: i64,
}

impl Columns {
    /// Returns the partition of a `[rows, cols]` matrix into these blocks of rows.
    pub(crate) fn of((rows, cols): (usize, usize), blocks: RowBlocks) -> Self {
        Self { rows: rows as i64, cols: cols as i64, stride: cols as i64, block_rows: blocks.rows as i64 }
    }

    /// Returns the same partition for a matrix whose rows begin `stride` values apart.
    #[must_use]
    pub(crate) fn with_stride(self, stride: usize) -> Self {
        Self { stride: stride as i64, ..self }
    }

    /// Returns the grid of a launch in which each lane holds `lane_values` neighbouring columns.
    pub(crate) fn grid(self, lane_values: usize) -> Grid {
        let across = (self.cols as usize).div_ceil(32 * lane_values) as u32;
        let down = (self.rows as usize).div_ceil(self.block_rows as usize) as u32;
        Grid { blocks: [across, down, 1], threads: 32 * WARPS as u32, shared_bytes: 0 }
    }

    /// Returns the same grid with the shared memory that `write_column_sums` needs.
    pub(crate) fn grid_with_sums(self, lane_values: usize) -> Grid {
        self.grid(lane_values).with_shared(WARPS * 32 * lane_values * size_of::<f32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels count rows and values in 64 bits, but the number of blocks must stay below the limit of a
    /// launch.
    #[test]
    fn blocks_cover_matrices_of_more_than_two_billion_values() {
        for (rows, cols, lane_values) in
            [(1 << 33, 1, 1), ((1 << 31) + 5, 768, 8), (3, 1 << 32, 4), (70_000_000, 64, 4), (1, 1, 1)]
        {
            let blocks = RowBlocks::of(rows, WARPS);
            let columns = Columns::of((rows, cols), blocks);
            let [across, down, deep] = columns.grid(lane_values).blocks.map(|count| count as usize);
            assert_eq!((down, deep), (blocks.count, 1));
            assert!(
                down <= 65_535 && down * blocks.rows >= rows && (down - 1) * blocks.rows < rows,
                "{rows} rows"
            );
            assert!(
                across * 32 * lane_values >= cols && (across - 1) * 32 * lane_values < cols,
                "{cols} columns"
            );
        }
    }
}
