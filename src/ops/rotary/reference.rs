//! Rotary position embedding composed of candle functions, a segment at a time.

use candle_core::Result;
use candle_core::Tensor;

/// `x cos a + rotate_half(x) sin a`, with `rotate_half(x)` the second half of each head, negated, before the
/// first; the angles are not rounded.
pub fn forward(x_td: &Tensor, heads: usize, cu_seqlens: &[u32], theta: f64) -> Result<Tensor> {
    let (hidden, dtype, device) = (x_td.dim(1)?, x_td.dtype(), x_td.device());
    let (head_size, half) = (hidden / heads, hidden / heads / 2);
    let mut segments = Vec::new();
    for bounds in cu_seqlens.windows(2) {
        let (start, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        if len == 0 {
            continue;
        }
        let angles = |place: usize| {
            (0..head_size).map(move |column| {
                place as f64 * theta.powf(-2.0 * (column % half) as f64 / head_size as f64)
            })
        };
        let angles: Vec<f64> = (0..len).flat_map(angles).collect();
        let angles = Tensor::from_vec(angles, (len, 1, head_size), device)?;
        let x = x_td.narrow(0, start, len)?.reshape((len, heads, head_size))?;
        let halves = [x.narrow(2, half, half)?.neg()?, x.narrow(2, 0, half)?];
        let turned = Tensor::cat(&halves, 2)?.broadcast_mul(&angles.sin()?.to_dtype(dtype)?)?;
        let y = (x.broadcast_mul(&angles.cos()?.to_dtype(dtype)?)? + turned)?;
        segments.push(y.reshape((len, hidden))?);
    }
    Tensor::cat(&segments, 0)
}
