//! Gated GELU composed of candle functions.

use candle_core::{Result, Tensor};

use crate::gelu;
use crate::gelu::Form;

/// `gelu(first half) * second half` of each row.
pub fn forward(x_t2f: &Tensor) -> Result<Tensor> {
    let half = x_t2f.dim(1)? / 2;
    let no_bias = Tensor::zeros(half, x_t2f.dtype(), x_t2f.device())?;
    let activated = gelu::reference::forward(Form::Erf, &x_t2f.narrow(1, 0, half)?, &no_bias)?;
    activated.mul(&x_t2f.narrow(1, half, half)?)
}
