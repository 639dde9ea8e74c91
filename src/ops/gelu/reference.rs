//! Bias and GELU composed of candle functions; candle's own `gelu_erf` has a gradient of only six digits.

use candle_core::Result;
use candle_core::Tensor;

/// `u * (1 + erf(u / sqrt 2)) / 2` with `u = x + bias`.
pub fn forward(x_tf: &Tensor, bias_f: &Tensor) -> Result<Tensor> {
    let u = x_tf.broadcast_add(bias_f)?;
    let phi = (((&u * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?;
    u.mul(&phi)
}
