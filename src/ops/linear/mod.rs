//! Linear map: `y = x W^T + b`.
//!
//! | value | shape | gradient |
//! |---|---|---|
//! | `x` | `[T, I]` | `dx = dy W` |
//! | `W` | `[O, I]` | `dW += dy^T x` (accumulates) |
//! | `b` | `[O]` | `db += sum over rows of dy` (accumulates) |
//! | `y` | `[T, O]` | `dy` |
//!
//! Saved for backward: `x`, by the caller.

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

mod cpu;
pub mod reference;

/// `y_to = x_ti W_oi^T + b_o`; without a bias where the next op adds it.
pub fn forward(x_ti: &Tensor, weight_oi: &Tensor, bias_o: Option<&Tensor>) -> Result<Tensor> {
    check(x_ti, weight_oi, 1)?;
    match x_ti.device() {
        Device::Cpu => cpu::forward(x_ti, weight_oi, bias_o),
        device => bail!("linear: no implementation for {device:?}"),
    }
}

/// `dx_ti = dy_to W_oi`.
pub fn backward_input(dy_to: &Tensor, weight_oi: &Tensor) -> Result<Tensor> {
    check(dy_to, weight_oi, 0)?;
    match dy_to.device() {
        Device::Cpu => cpu::backward_input(dy_to, weight_oi),
        device => bail!("linear: no implementation for {device:?}"),
    }
}

/// `dx_ti += dy_to W_oi`, for an input that feeds several maps.
pub fn backward_input_accumulate(dy_to: &Tensor, weight_oi: &Tensor, dx_ti: &Tensor) -> Result<()> {
    check(dy_to, weight_oi, 0)?;
    match dy_to.device() {
        Device::Cpu => cpu::backward_input_accumulate(dy_to, weight_oi, dx_ti),
        device => bail!("linear: no implementation for {device:?}"),
    }
}

/// `dW_oi += dy_to^T x_ti`, and `db_o += sum of dy_to` where there is a bias here.
pub fn backward_parameters(dy_to: &Tensor, x_ti: &Tensor, dweight_oi: &Tensor, dbias_o: Option<&Tensor>) -> Result<()> {
    check(dy_to, dweight_oi, 0)?;
    check(x_ti, dweight_oi, 1)?;
    match dy_to.device() {
        Device::Cpu => cpu::backward_parameters(dy_to, x_ti, dweight_oi, dbias_o),
        device => bail!("linear: no implementation for {device:?}"),
    }
}

fn check(rows: &Tensor, weight: &Tensor, weight_dim: usize) -> Result<()> {
    if rows.rank() != 2 || weight.rank() != 2 || rows.dim(1)? != weight.dim(weight_dim)? {
        bail!("linear: rows {:?} do not fit weight {:?}", rows.shape(), weight.shape());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
