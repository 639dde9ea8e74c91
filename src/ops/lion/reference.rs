//! Lion composed of candle functions, with the operations in the paper's order.

use candle_core::{Result, Tensor};

use crate::update::Hyper;

/// Returns parameters and momentum after one update of the tensors of one group, and the values `c` whose
/// signs are the directions of the update.
pub fn update(p: &Tensor, g: &Tensor, m: &Tensor, weight_decay: f64, hyper: &Hyper) -> Result<[Tensor; 3]> {
    let g = (g * f64::from(hyper.gradient_multiplier))?;
    let c = ((m * hyper.beta1)? + (&g * (1.0 - hyper.beta1))?)?;
    let change = (c.sign()? + (p * weight_decay)?)?;
    let m = ((m * hyper.beta2)? + (&g * (1.0 - hyper.beta2))?)?;
    Ok([(p - (change * hyper.lr)?)?, m, c])
}
