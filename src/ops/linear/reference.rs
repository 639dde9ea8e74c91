//! The linear map composed of candle functions, as the reference.

use candle_core::{Result, Tensor};

/// `x W^T + b` in any float type.
pub fn forward(x_ti: &Tensor, weight_oi: &Tensor, bias_o: Option<&Tensor>) -> Result<Tensor> {
    let y = x_ti.matmul(&weight_oi.t()?)?;
    match bias_o {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}
