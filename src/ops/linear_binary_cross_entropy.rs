//! A linear map to one logit and its binary cross-entropy, fused: the output of ELECTRA's discriminator,
//! which detects replaced tokens (Clark et al. 2020, section 2).
//!
//! Forward, for `x` `[M, D]`, `w` `[1, D]`, `b` `[1]` and labels `l` `[M]` of 0 or 1: `z[m] = x[m] . w + b`
//! and `loss_sum = sum over m of max(z, 0) - z l + ln(1 + exp(-|z|))`, a *sum* as in
//! [`crate::cross_entropy`]. The prediction for a row is 1 if `z > 0`, else 0.
//!
//! Backward, with `dz = scale * (sigmoid(z) - l)`: `dx = dz w`, `dw += sum over m of dz x`,
//! `db += sum over m of dz`. Forward and backward run together, because `scale`, the gradient of the step's
//! loss with respect to the loss sum, is known in advance; nothing is saved.
//!
//! `x` and `dx` are f32, bf16 or f16; `w`, `b`, the logits and all gradients of parameters are f32, the loss
//! is f64.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::computed::AnyIndices;
use crate::cuda::{Gpu, read};
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::tensor::{check_len, check_shape};

/// The parameters of the linear map, f32.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    /// The weight `w`, `[1, D]`.
    pub weight: &'a Tensor,
    /// The bias `b`, `[1]`.
    pub bias: &'a Tensor,
}

/// The totals of all rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// The sum of the losses of all rows in nats; not finite if a logit is not.
    pub loss_sum: f64,
    /// Number of rows with a correct prediction.
    pub correct: usize,
    /// Number of rows with the prediction 1.
    pub predicted: usize,
    /// Number of rows with the prediction 1 and the label 1.
    pub hits: usize,
}

impl Totals {
    /// Reads totals, f64 `[4]`, that [`forward`] returned; waits for the device.
    pub fn read(totals: &Tensor) -> Result<Self> {
        let values = read(totals)?;
        let [correct, predicted, hits] = [values[1], values[2], values[3]].map(|count| count as usize);
        Ok(Self { loss_sum: values[0], correct, predicted, hits })
    }

    /// Number of rows with the label 1; `rows` is the number of all rows.
    pub fn ones(&self, rows: usize) -> usize {
        // Errors are false positives and false negatives.
        let errors = rows - self.correct;
        let false_positives = self.predicted - self.hits;
        self.hits + errors - false_positives
    }
}

/// Returns the logits, f32 `[M]`.
pub fn logits(x_md: &Tensor, map: Map<'_>) -> Result<Tensor> {
    check(x_md, map)?;
    match Gpu::of(x_md)? {
        None => by_dtype!("linear binary cross entropy", x_md, T => cpu::logits::<T>(x_md, map)),
        Some(gpu) => cuda::logits(&gpu, x_md, map),
    }
}

/// Returns the totals, f64 `[4]`, for [`Totals::read`]. A label that is neither 0 nor 1 is an error that
/// names it; labels that were computed on the GPU are not checked, and count as 0 unless they are 1.
pub fn forward<'a>(x_md: &Tensor, map: Map<'_>, labels: impl Into<AnyIndices<'a>>) -> Result<Tensor> {
    forward_compiled(x_md, map, labels.into())
}

fn forward_compiled(x_md: &Tensor, map: Map<'_>, labels: AnyIndices<'_>) -> Result<Tensor> {
    check(x_md, map)?;
    check_labels(x_md, labels)?;
    match Gpu::of(x_md)? {
        None => {
            by_dtype!("linear binary cross entropy", x_md, T => cpu::forward::<T>(x_md, map, labels.host()?))
        }
        Some(gpu) => cuda::forward(&gpu, x_md, map, labels),
    }
}

/// Returns the result of [`forward`], and `dx_md` for the loss `scale * loss_sum`; adds to `dmap`, the
/// gradients of the map.
pub fn forward_backward<'a>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: impl Into<AnyIndices<'a>>,
    scale: f32,
    dmap: Map<'_>,
) -> Result<(Tensor, Tensor)> {
    forward_backward_compiled(x_md, map, labels.into(), scale, dmap)
}

fn forward_backward_compiled(
    x_md: &Tensor,
    map: Map<'_>,
    labels: AnyIndices<'_>,
    scale: f32,
    dmap: Map<'_>,
) -> Result<(Tensor, Tensor)> {
    check(x_md, map)?;
    check_labels(x_md, labels)?;
    check_shape("linear binary cross entropy: weight gradient", dmap.weight, map.weight.dims())?;
    check_shape("linear binary cross entropy: bias gradient", dmap.bias, map.bias.dims())?;
    match Gpu::of(x_md)? {
        None => {
            by_dtype!("linear binary cross entropy", x_md, T => cpu::forward_backward::<T>(x_md, map, labels.host()?, scale, dmap))
        }
        Some(gpu) => cuda::forward_backward(&gpu, x_md, map, labels, scale, dmap),
    }
}

fn check(x_md: &Tensor, map: Map<'_>) -> Result<()> {
    check_shape("linear binary cross entropy: weight", map.weight, &[1, x_md.dims2()?.1])?;
    check_shape("linear binary cross entropy: bias", map.bias, &[1])
}

fn check_labels(x_md: &Tensor, labels: AnyIndices<'_>) -> Result<()> {
    check_len("linear binary cross entropy: labels", labels.len(), x_md.dim(0)?)?;
    check_ids("linear binary cross entropy: label", labels, 2)
}
