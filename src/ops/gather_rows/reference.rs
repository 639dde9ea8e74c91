//! Gathering of rows by candle's `index_select`.

use candle_core::{Result, Tensor};

/// The rows of `x` at `positions`.
pub fn forward(x_td: &Tensor, positions: &[u32]) -> Result<Tensor> {
    x_td.index_select(&Tensor::new(positions, x_td.device())?, 0)
}
