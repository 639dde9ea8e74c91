//! Softmax cross-entropy over rows of logits that all have a label: the masked positions only, never
//! `[tokens, vocabulary]`.
//!
//! Forward, for logits `z` `[M, V]` and labels `l` `[M]`: `lse[m] = log(sum over v of exp(z[m, v]))` and
//! `loss_sum = sum over m of lse[m] - z[m, l[m]]`; a *sum*, because the count to divide by is that of the
//! whole step. Saved: `lse` `[M]`; the caller keeps the logits.
//!
//! Backward: `dz[m, v] = scale * (exp(z[m, v] - lse[m]) - [v = l[m]])`, written over the logits, with `scale`
//! the gradient of the step's loss by `loss_sum` (one over the count of labels).
//!
//! Logits are f32, bf16 or f16, and their gradient is of the same type; the arithmetic and what is saved is
//! f32, the loss f64.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;

use crate::cuda::Gpu;
use crate::cuda::read;
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::indices::Indices;
use crate::tensor::check_len;
use crate::tensor::check_shape;

/// What a forward pass gives, on the device of the logits; reading it waits for it, nothing else does.
#[derive(Debug, Clone)]
pub struct Entropy {
    /// The sum of the losses of all rows in nats, and how many rows have their (first) largest logit at the
    /// label: f64 `[2]`.
    pub totals: Tensor,
    /// The logarithm of the sum of exponentials of each row, f32 `[M]`: what backward needs.
    pub log_sum_exp_m: Tensor,
}

/// The totals of [`Entropy`] once they are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// The sum of the losses of all rows in nats; not finite when a logit is not.
    pub loss_sum: f64,
    /// How many rows have their (first) largest logit at the label.
    pub correct: usize,
}

impl Totals {
    /// Reads the totals of an [`Entropy`]; waits for the device.
    pub fn read(totals: &Tensor) -> Result<Self> {
        let values = read(totals)?;
        Ok(Self { loss_sum: values[0], correct: values[1] as usize })
    }
}

/// Loss and score of `logits_mv`; an error names a label that is not below `V`.
pub fn forward<'a>(logits_mv: &Tensor, labels: impl Into<Indices<'a>>) -> Result<Entropy> {
    let labels = labels.into();
    check(logits_mv, labels)?;
    match Gpu::of(logits_mv)? {
        None => by_dtype!("cross entropy", logits_mv, T => cpu::forward::<T>(logits_mv, labels.host())),
        Some(gpu) => cuda::forward(&gpu, logits_mv, labels),
    }
}

/// `dlogits_mv`, in the memory of the logits: every other handle on that tensor sees the gradient too.
pub fn backward<'a>(
    logits_mv: Tensor,
    labels: impl Into<Indices<'a>>,
    log_sum_exp_m: &Tensor,
    scale: f32,
) -> Result<Tensor> {
    let labels = labels.into();
    check(&logits_mv, labels)?;
    check_shape("cross entropy: log sum exp", log_sum_exp_m, &[labels.len()])?;
    match Gpu::of(&logits_mv)? {
        None => {
            by_dtype!("cross entropy", logits_mv, T => cpu::backward::<T>(&logits_mv, labels.host(), log_sum_exp_m, scale))
        }
        Some(gpu) => cuda::backward(&gpu, &logits_mv, labels, log_sum_exp_m, scale),
    }?;
    Ok(logits_mv)
}

fn check(logits_mv: &Tensor, labels: Indices<'_>) -> Result<()> {
    let (rows, classes) = logits_mv.dims2()?;
    check_len("cross entropy: labels", labels.len(), rows)?;
    check_ids("cross entropy: label", labels, classes)
}
