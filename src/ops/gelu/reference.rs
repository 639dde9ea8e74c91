//! Bias and GELU composed of candle functions; the gradient of candle's own `gelu_erf` has only six correct
//! digits.

use candle_core::{Result, Tensor};

use crate::gelu::Form;

/// `u * (1 + erf(u / sqrt 2)) / 2` with `u = x + bias`; in the tanh form with
/// `tanh(sqrt(2 / pi) * (u + 0.044715 u^3))` instead of the error function.
pub fn forward(form: Form, x_tf: &Tensor, bias_f: &Tensor) -> Result<Tensor> {
    let u = x_tf.broadcast_add(bias_f)?;
    let curve = match form {
        Form::Erf => (&u * std::f64::consts::FRAC_1_SQRT_2)?.erf()?,
        Form::Tanh => {
            let cube = u.sqr()?.mul(&u)?;
            ((&u + (cube * 0.044_715)?)? * (2.0 / std::f64::consts::PI).sqrt())?.tanh()?
        }
    };
    u.mul(&((curve + 1.0)? * 0.5)?)
}
