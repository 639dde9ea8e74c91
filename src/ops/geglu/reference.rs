//! Gated GELU composed of candle functions.

use candle_core::{Result, Tensor};

use crate::activation;
use crate::activation::Function;

/// `gelu(first half) * second half` of each row.
pub fn forward(x_t2f: &Tensor) -> Result<Tensor> {
    let half = x_t2f.dim(1)? / 2;
    let no_bias = Tensor::zeros(half, x_t2f.dtype(), x_t2f.device())?;
    let activated = activation::reference::forward(Function::Gelu, &x_t2f.narrow(1, 0, half)?, &no_bias)?;
    activated.mul(&x_t2f.narrow(1, half, half)?)
}
