//! The first row of each segment added to its rows, composed of candle functions.

use candle_core::{Result, Tensor};

/// Adds to each row the first row of its segment.
pub fn forward(x_td: &Tensor, cu_seqlens: &[u32]) -> Result<Tensor> {
    let mut segments = Vec::new();
    for bounds in cu_seqlens.windows(2).filter(|bounds| bounds[0] < bounds[1]) {
        let start = bounds[0] as usize;
        let len = (bounds[1] - bounds[0]) as usize;
        segments.push(x_td.narrow(0, start, len)?.broadcast_add(&x_td.narrow(0, start, 1)?)?);
    }
    Tensor::cat(&segments, 0)
}
