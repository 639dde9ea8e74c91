//! Adds the first row of each segment to its rows on the CPU, by gathering rows.

use candle_core::{Result, Tensor};

use crate::gather_rows;

/// For each row, the index of the first row of its segment.
fn first_rows(bounds: &[u32]) -> Vec<u32> {
    bounds.windows(2).flat_map(|segment| (segment[0]..segment[1]).map(|_| segment[0])).collect()
}

pub(super) fn forward(x_td: &Tensor, bounds: &[u32]) -> Result<Tensor> {
    x_td + gather_rows::forward(x_td, &first_rows(bounds))?
}

pub(super) fn backward(dy_td: &Tensor, bounds: &[u32]) -> Result<Tensor> {
    dy_td + gather_rows::backward(dy_td, &first_rows(bounds), dy_td.dim(0)?)?
}
