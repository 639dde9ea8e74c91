//! LAMB composed of candle functions, for one tensor.

use candle_core::{DType, Result, Tensor};

use crate::update::Hyper;

/// Returns parameters, first moment and second moment after one update of one tensor.
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
    let m = ((m * hyper.beta1)? + (&g * (1.0 - hyper.beta1))?)?;
    let v = ((v * hyper.beta2)? + (g.sqr()? * (1.0 - hyper.beta2))?)?;
    let first = (&m / correction1)?;
    let second = (&v / correction2)?;
    let u = (first.div(&(second.sqrt()? + hyper.eps)?)? + (p * weight_decay)?)?;
    let ratio = if weight_decay == 0.0 { 1.0 } else { trust_ratio(norm(p)?, norm(&u)?) };
    Ok([(p - (u * (hyper.lr * ratio))?)?, m, v])
}

fn norm(t: &Tensor) -> Result<f64> {
    t.to_dtype(DType::F64)?.sqr()?.sum_all()?.sqrt()?.to_scalar()
}

fn trust_ratio(parameters: f64, update: f64) -> f64 {
    if parameters > 0.0 && update > 0.0 { parameters / update } else { 1.0 }
}
