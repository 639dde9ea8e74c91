//! Normalisation of rows: layer normalisation over the last dimension (Ba et al. 2016), with the biased
//! variance, the same as `torch.nn.LayerNorm`; and RMSNorm (Zhang and Sennrich 2019), the same as
//! `torch.nn.RMSNorm`, which takes the mean for 0.
//!
//! Forward, for each row `t` of `x` `[T, D]`: `mean = sum(x) / D`,
//! `rstd = 1 / sqrt(sum((x - mean)^2) / D + eps)`, `y = (x - mean) * rstd * weight + bias`; the bias is
//! optional. RMSNorm has `mean = 0`. Saved: `rstd` and, of layer normalisation, `mean`, `[T]`; the caller
//! keeps `x`.
//!
//! Backward, with `n = (x - mean) * rstd` and `g = dy * weight`:
//! `dx = rstd * (g - sum(g) / D - n * sum(g * n) / D)`, `dweight += sum over t of dy * n`,
//! `dbias += sum over t of dy`. RMSNorm has no term `sum(g) / D`. The two sums over `t` accumulate into the
//! caller's tensors.
//!
//! `x`, `y` and their gradients have one dtype: f32, bf16 or f16. All else is f32, and all arithmetic is done
//! in f32.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod earlier;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::{check_one_dtype, check_shape, check_vectors};

/// The form of the norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Layer normalisation.
    LayerNorm,
    /// RMSNorm, which does not subtract the mean.
    RmsNorm,
}

impl Form {
    /// Bytes of the values saved for each row.
    pub fn saved_bytes(self) -> u64 {
        match self {
            Self::LayerNorm => 8,
            Self::RmsNorm => 4,
        }
    }
}

/// The values that backward needs in addition to the input.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The mean of each row, `[T]`; `None` for RMSNorm.
    pub mean_t: Option<Tensor>,
    /// The inverse standard deviation of each row, `[T]`; of RMSNorm the inverse root mean square.
    pub rstd_t: Tensor,
}

/// Returns `y_td`, and the values to save for backward.
pub fn forward(
    form: Form,
    x_td: &Tensor,
    weight_d: &Tensor,
    bias_d: Option<&Tensor>,
    eps: f64,
) -> Result<(Tensor, Saved)> {
    let (_, hidden) = x_td.dims2()?;
    check_vectors("layer norm", &[("weight", Some(weight_d)), ("bias", bias_d)], hidden)?;
    match Gpu::of(x_td)? {
        None => by_dtype!("layer norm", x_td, T => cpu::forward::<T>(form, x_td, weight_d, bias_d, eps)),
        Some(gpu) => cuda::forward(form, &gpu, x_td, weight_d, bias_d, eps),
    }
}

/// Returns `dx_td`; adds to `dweight_d` and, unless it is `None`, to `dbias_d`.
pub fn backward(
    dy_td: &Tensor,
    x_td: &Tensor,
    weight_d: &Tensor,
    saved: &Saved,
    dweight_d: &Tensor,
    dbias_d: Option<&Tensor>,
) -> Result<Tensor> {
    let (tokens, hidden) = x_td.dims2()?;
    check_shape("layer norm: output gradient", dy_td, &[tokens, hidden])?;
    check_shape("layer norm: saved deviation", &saved.rstd_t, &[tokens])?;
    let vectors =
        [("weight", Some(weight_d)), ("weight gradient", Some(dweight_d)), ("bias gradient", dbias_d)];
    check_vectors("layer norm", &vectors, hidden)?;
    check_one_dtype("layer norm", &[("the input", x_td), ("the output gradient", dy_td)])?;
    match Gpu::of(x_td)? {
        None => {
            by_dtype!("layer norm", x_td, T => cpu::backward::<T>(dy_td, x_td, weight_d, saved, dweight_d, dbias_d))
        }
        Some(gpu) => {
            let inputs = cuda::BackwardInputs { dy_td, more_td: None, x_td, weight_d, saved };
            cuda::backward(&gpu, inputs, dweight_d, dbias_d)
        }
    }
}
