//! The first row of each segment added to its rows, composed of candle functions.

use candle_core::Result;
use candle_core::Tensor;

/// Each row plus the first one of its segment.
pub fn forward(x_td: &Tensor, cu_seqlens: &[u32]) -> Result<Tensor> {
    let with_first = |bounds: &[u32]| {
        let (start, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        x_td.narrow(0, start, len)?.broadcast_add(&x_td.narrow(0, start, 1)?)
    };
    let segments = cu_seqlens.windows(2).filter(|bounds| bounds[0] < bounds[1]);
    Tensor::cat(&segments.map(with_first).collect::<Result<Vec<_>>>()?, 0)
}
