//! Muon composed of candle functions, with the operations in PyTorch's order.

use candle_core::{Result, Tensor};

use crate::muon::{COEFFICIENTS, EPS, Settings};
use crate::update::Hyper;

/// Returns parameters and momentum after one update of one matrix, without rounding to another type.
pub fn update(
    p: &Tensor,
    g: &Tensor,
    m: &Tensor,
    weight_decay: f64,
    hyper: &Hyper,
    settings: &Settings,
) -> Result<[Tensor; 2]> {
    let momentum = settings.momentum;
    let g = (g * f64::from(hyper.gradient_multiplier))?;
    let m = ((m * momentum)? + (&g * (1.0 - momentum))?)?;
    let direction =
        if settings.nesterov { ((&g * (1.0 - momentum))? + (&m * momentum)?)? } else { m.clone() };
    let (rows, cols) = p.dims2()?;
    let ratio = settings.adjust_lr.ratio([rows, cols]);
    let p = (p * (1.0 - hyper.lr * weight_decay))?;
    Ok([(p - (orthogonalised(&direction, settings.ns_steps)? * (hyper.lr * ratio))?)?, m])
}

fn orthogonalised(direction: &Tensor, steps: usize) -> Result<Tensor> {
    let (rows, cols) = direction.dims2()?;
    if rows > cols {
        return orthogonalised(&direction.t()?.contiguous()?, steps)?.t()?.contiguous();
    }
    let norm = direction.sqr()?.sum_all()?.sqrt()?.to_scalar::<f64>()?;
    let mut x = (direction / norm.max(EPS))?;
    let [a, b, c] = COEFFICIENTS.map(f64::from);
    for _ in 0..steps {
        let gram = x.matmul(&x.t()?)?;
        let polynomial = ((&gram * b)? + (gram.matmul(&gram)? * c)?)?;
        x = ((&x * a)? + polynomial.matmul(&x)?)?;
    }
    Ok(x)
}
