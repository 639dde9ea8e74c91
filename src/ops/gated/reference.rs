//! Gated activations composed of candle functions.

use candle_core::{Result, Tensor};

use crate::activation;
use crate::gated::Function;

/// The function of the first half, times the second half of each row.
pub fn forward(function: Function, x_t2f: &Tensor) -> Result<Tensor> {
    let half = x_t2f.dim(1)? / 2;
    let u = x_t2f.narrow(1, 0, half)?;
    let activated = match function {
        Function::Gelu => {
            let no_bias = Tensor::zeros(half, x_t2f.dtype(), x_t2f.device())?;
            activation::reference::forward(activation::Function::Gelu, &u, &no_bias)?
        }
        Function::Silu => u.div(&(u.neg()?.exp()? + 1.0)?)?,
    };
    activated.mul(&x_t2f.narrow(1, half, half)?)
}
