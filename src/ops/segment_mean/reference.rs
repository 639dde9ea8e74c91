//! The mean of each segment, composed of candle functions.

use candle_core::Result;
use candle_core::Tensor;

/// The mean of the rows of each segment; zeros where it has none.
pub fn forward(x_td: &Tensor, cu_seqlens: &[u32]) -> Result<Tensor> {
    let mean = |bounds: &[u32]| {
        let (start, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        let rows = x_td.narrow(0, start, len)?.sum_keepdim(0)?;
        rows.affine(1.0 / len.max(1) as f64, 0.0)
    };
    Tensor::cat(&cu_seqlens.windows(2).map(mean).collect::<Result<Vec<_>>>()?, 0)
}
