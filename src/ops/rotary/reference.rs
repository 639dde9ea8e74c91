//! Rotary position embedding composed of candle functions, one segment at a time.

use candle_core::{Result, Tensor};

/// `x cos a + rotate_half(x) sin a`. `rotate_half(x)` is the negated second half of each head followed by its
/// first half. The angles are not rounded to f32.
pub fn forward(x_td: &Tensor, heads: usize, cu_seqlens: &[u32], theta: f64) -> Result<Tensor> {
    let (hidden, dtype, device) = (x_td.dim(1)?, x_td.dtype(), x_td.device());
    let head_size = hidden / heads;
    let half = head_size / 2;
    let mut segments = Vec::new();
    for bounds in cu_seqlens.windows(2) {
        let start = bounds[0] as usize;
        let len = (bounds[1] - bounds[0]) as usize;
        if len == 0 {
            continue;
        }
        let mut angles = Vec::with_capacity(len * head_size);
        for place in 0..len {
            angles.extend(
                (0..head_size).map(|column| {
                    place as f64 * theta.powf(-2.0 * (column % half) as f64 / head_size as f64)
                }),
            );
        }
        let angles = Tensor::from_vec(angles, (len, 1, head_size), device)?;
        let x = x_td.narrow(0, start, len)?.reshape((len, heads, head_size))?;
        let halves = [x.narrow(2, half, half)?.neg()?, x.narrow(2, 0, half)?];
        let turned = Tensor::cat(&halves, 2)?.broadcast_mul(&angles.sin()?.to_dtype(dtype)?)?;
        let y = (x.broadcast_mul(&angles.cos()?.to_dtype(dtype)?)? + turned)?;
        segments.push(y.reshape((len, hidden))?);
    }
    Tensor::cat(&segments, 0)
}
