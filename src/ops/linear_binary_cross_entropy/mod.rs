//! A linear map to one logit and the binary cross-entropy of it in one op: how a discriminator tells replaced
//! tokens (Clark et al. 2020, section 2).
//!
//! Forward, for `x` `[M, D]`, `w` `[1, D]`, `b` `[1]` and labels `l` `[M]` of 0 or 1: `z[m] = x[m] . w + b`
//! and `loss_sum = sum over m of max(z, 0) - z l + ln(1 + exp(-|z|))`, a *sum* as in
//! [`crate::cross_entropy`]. A row counts as told to be 1 where `z > 0`.
//!
//! Backward, with `dz = scale * (sigmoid(z) - l)`: `dx = dz w`, `dw += sum over m of dz x`, `db += sum over m
//! of dz`. Both are done at once, because `scale`, the gradient of the step's loss by the loss sum, is known
//! before; nothing is saved.
//!
//! `x` and `dx` are f32, bf16 or f16; `w`, `b`, the logits and all gradients of parameters are f32, the loss
//! f64.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;

use crate::computed::AnyIndices;
use crate::cuda::Gpu;
use crate::cuda::read;
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::tensor::check_len;
use crate::tensor::check_shape;

/// The map: `w` `[1, D]`, `b` `[1]`, f32.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    /// `w`.
    pub weight: &'a Tensor,
    /// `b`.
    pub bias: &'a Tensor,
}

/// What a pass over all rows comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// The sum of the losses of all rows in nats; not finite when a logit is not.
    pub loss_sum: f64,
    /// Rows that are told right.
    pub correct: usize,
    /// Rows that are told to be 1.
    pub predicted: usize,
    /// Rows that are told to be 1 and are.
    pub hits: usize,
}

impl Totals {
    /// Reads the totals that [`forward`] gave, f64 `[4]`; waits for the device.
    pub fn read(totals: &Tensor) -> Result<Self> {
        let values = read(totals)?;
        let count = |index: usize| values[index] as usize;
        Ok(Self { loss_sum: values[0], correct: count(1), predicted: count(2), hits: count(3) })
    }

    /// How many of all `rows` have the label 1.
    pub fn ones(&self, rows: usize) -> usize {
        // Told wrong are zeros that are told to be 1, and ones that are not.
        let (wrong, wrong_zeros) = (rows - self.correct, self.predicted - self.hits);
        self.hits + wrong - wrong_zeros
    }
}

/// The logits, f32 `[M]`.
pub fn logits(x_md: &Tensor, map: Map<'_>) -> Result<Tensor> {
    check(x_md, map)?;
    match Gpu::of(x_md)? {
        None => by_dtype!("linear binary cross entropy", x_md, T => cpu::logits::<T>(x_md, map)),
        Some(gpu) => cuda::logits(&gpu, x_md, map),
    }
}

/// Loss and scores, f64 `[4]` for [`Totals::read`]; an error names a label that is neither 0 nor 1. Labels
/// that were computed on the GPU are not checked: one that is not 1 counts as 0.
pub fn forward<'a>(x_md: &Tensor, map: Map<'_>, labels: impl Into<AnyIndices<'a>>) -> Result<Tensor> {
    let labels = labels.into();
    check(x_md, map)?;
    check_labels(x_md, labels)?;
    match Gpu::of(x_md)? {
        None => {
            by_dtype!("linear binary cross entropy", x_md, T => cpu::forward::<T>(x_md, map, labels.host()?))
        }
        Some(gpu) => cuda::forward(&gpu, x_md, map, labels),
    }
}

/// [`forward`], and `dx_md` for `scale` times the summed loss; adds to `dmap`, the gradients of the map.
pub fn forward_backward<'a>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: impl Into<AnyIndices<'a>>,
    scale: f32,
    dmap: Map<'_>,
) -> Result<(Tensor, Tensor)> {
    let labels = labels.into();
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
