//! The mean of each segment, composed of candle functions.

use candle_core::{Result, Tensor};

/// The mean of the rows of each segment; zeros for an empty segment.
pub fn forward(x_td: &Tensor, cu_seqlens: &[u32]) -> Result<Tensor> {
    let mut means = Vec::new();
    for bounds in cu_seqlens.windows(2) {
        let start = bounds[0] as usize;
        let len = (bounds[1] - bounds[0]) as usize;
        let sum = x_td.narrow(0, start, len)?.sum_keepdim(0)?;
        means.push(sum.affine(1.0 / len.max(1) as f64, 0.0)?);
    }
    Tensor::cat(&means, 0)
}
