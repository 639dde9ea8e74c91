//! The fused op as the references of its two parts, one after the other.

use candle_core::{Result, Tensor};

use crate::{cross_entropy, linear};

/// The summed loss, a scalar, in any float type.
pub fn forward(x_md: &Tensor, weight_vd: &Tensor, bias_v: &Tensor, labels: &[u32]) -> Result<Tensor> {
    cross_entropy::reference::forward(&linear::reference::forward(x_md, weight_vd, Some(bias_v))?, labels)
}
