//! AdamW composed of candle functions, with the operations in PyTorch's order.

use candle_core::{Result, Tensor};

use crate::adamw::Hyper;

/// Returns parameters, first moment and second moment after one update of the tensors of one group.
pub fn update(
    p: &Tensor,
    g: &Tensor,
    m: &Tensor,
    v: &Tensor,
    weight_decay: f64,
    hyper: &Hyper,
) -> Result<[Tensor; 3]> {
    let [correction1, correction2] = [hyper.beta1, hyper.beta2]
        .map(|beta| if hyper.bias_correction { 1.0 - beta.powf(hyper.step as f64) } else { 1.0 });
    let g = (g * f64::from(hyper.gradient_multiplier))?;
    let p = (p * (1.0 - hyper.lr * weight_decay))?;
    let m = ((m * hyper.beta1)? + (&g * (1.0 - hyper.beta1))?)?;
    let v = ((v * hyper.beta2)? + (g.sqr()? * (1.0 - hyper.beta2))?)?;
    let denominator = ((v.sqrt()? / correction2.sqrt())? + hyper.eps)?;
    Ok([(p - (m.div(&denominator)? * (hyper.lr / correction1))?)?, m, v])
}
