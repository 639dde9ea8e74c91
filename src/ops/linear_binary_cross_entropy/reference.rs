//! The fused op composed of candle functions, as the reference.

use candle_core::{Result, Tensor};

use crate::linear;

/// The summed loss, a scalar, in any float type.
pub fn forward(x_md: &Tensor, weight: &Tensor, bias: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let z = linear::reference::forward(x_md, weight, Some(bias))?.flatten_all()?;
    let labels = Tensor::new(labels, z.device())?.to_dtype(z.dtype())?;
    let rest = (z.abs()?.neg()?.exp()? + 1.0)?.log()?;
    (z.relu()? - (&z * &labels)? + rest)?.sum_all()
}
