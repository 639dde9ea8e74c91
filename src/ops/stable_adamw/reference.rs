//! StableAdamW composed of candle functions, with the operations in torch-optimi's order.

use candle_core::{Result, Tensor};

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
    let [correction1, correction2] = [hyper.correction(hyper.beta1), hyper.correction(hyper.beta2)];
    let g = (g * f64::from(hyper.gradient_multiplier))?;
    let m = ((m * hyper.beta1)? + (&g * (1.0 - hyper.beta1))?)?;
    let v = ((v * hyper.beta2)? + (g.sqr()? * (1.0 - hyper.beta2))?)?;
    let [m_corrected, v_corrected] = [(&m / correction1)?, (&v / correction2)?];
    let squares = g.sqr()?.div(&v_corrected.maximum(hyper.eps * hyper.eps)?)?;
    let rms = squares.mean_all()?.sqrt()?.to_scalar::<f64>()?;
    let lr = hyper.lr / rms.max(1.0);
    let p = (p * (1.0 - lr * weight_decay))?;
    let step = m_corrected.div(&(v_corrected.sqrt()? + hyper.eps)?)?;
    Ok([(p - (step * lr)?)?, m, v])
}
