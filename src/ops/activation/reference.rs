//! Bias and activation composed of candle functions; the gradient of candle's own `gelu_erf` has only six
//! correct digits.

use candle_core::{Result, Tensor};

use crate::activation::Function;

/// `F(x + bias)`.
pub fn forward(function: Function, x_tf: &Tensor, bias_f: &Tensor) -> Result<Tensor> {
    let u = x_tf.broadcast_add(bias_f)?;
    let curve = match function {
        Function::Tanh => return u.tanh(),
        Function::Relu => return u.relu(),
        Function::Gelu => (&u * std::f64::consts::FRAC_1_SQRT_2)?.erf()?,
        Function::GeluTanh => {
            let cube = u.sqr()?.mul(&u)?;
            ((&u + (cube * 0.044_715)?)? * (2.0 / std::f64::consts::PI).sqrt())?.tanh()?
        }
    };
    u.mul(&((curve + 1.0)? * 0.5)?)
}
