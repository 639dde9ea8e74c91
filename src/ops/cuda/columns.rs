//! How kernels that go over whole matrices share them out: see `kernels/columns.cuh`.

use super::Grid;
use super::sums::RowBlocks;

/// Warps of a block, which take its rows in turns.
pub(crate) const WARPS: usize = 8;

/// Twin of `Columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Columns {
    rows: i64,
    cols: i64,
    stride: i64,
    block_rows: i64,
}

impl Columns {
    /// A matrix of `[rows, cols]`, its rows shared out so.
    pub(crate) fn of((rows, cols): (usize, usize), blocks: RowBlocks) -> Self {
        let (rows, cols) = (rows as i64, cols as i64);
        Self { rows, cols, stride: cols, block_rows: blocks.rows as i64 }
    }

    /// The same with rows that begin so many values apart.
    #[must_use]
    pub(crate) fn with_stride(self, stride: usize) -> Self {
        Self { stride: stride as i64, ..self }
    }

    /// The blocks of a launch whose lanes hold so many columns each.
    pub(crate) fn grid(self, lane_values: usize) -> Grid {
        let across = (self.cols as usize).div_ceil(32 * lane_values) as u32;
        let down = (self.rows as usize).div_ceil(self.block_rows as usize) as u32;
        Grid { blocks: [across, down, 1], threads: 32 * WARPS as u32, shared_bytes: 0 }
    }

    /// The same with the shared memory of `write_column_sums`.
    pub(crate) fn grid_with_sums(self, lane_values: usize) -> Grid {
        self.grid(lane_values).with_shared(WARPS * 32 * lane_values * size_of::<f32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels count rows and values in 64 bits; blocks must stay within what a launch can count.
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
