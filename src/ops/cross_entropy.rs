//! Softmax cross-entropy over rows of logits that all have a label: only the masked positions, never
//! `[tokens, vocabulary]`.
//!
//! Forward, for logits `z` `[M, V]` and labels `l` `[M]`: `lse[m] = log(sum over v of exp(z[m, v]))` and
//! `loss_sum = sum over m of lse[m] - z[m, l[m]]`. The loss is a *sum*, because it is divided by the number
//! of labels of the whole step, not of one micro-batch. Saved: `lse` `[M]`; the caller keeps the logits.
//!
//! Backward: `dz[m, v] = scale * (exp(z[m, v] - lse[m]) - [v = l[m]])`, written over the logits, with `scale`
//! the gradient of the step's loss with respect to `loss_sum` (one divided by the number of labels).
//!
//! Logits are f32, bf16 or f16, and their gradient has the same dtype; the arithmetic and `lse` are f32, the
//! loss f64.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::cuda::{Gpu, read};
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::indices::Indices;
use crate::tensor::{check_len, check_shape};

/// The result of a forward pass, on the device of the logits. Only reading it waits for the device.
#[derive(Debug, Clone)]
pub struct Entropy {
    /// The sum of the losses of all rows in nats, and the number of rows whose (first) largest logit is that
    /// of the label: f64 `[2]`.
    pub totals: Tensor,
    /// The logarithm of the sum of exponentials of each row, f32 `[M]`, which backward needs.
    pub log_sum_exp_m: Tensor,
}

/// The totals of [`Entropy`], on the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// The sum of the losses of all rows in nats; not finite if a logit is not.
    pub loss_sum: f64,
    /// Number of rows whose (first) largest logit is that of the label.
    pub correct: usize,
}

impl Totals {
    /// Reads the totals of an [`Entropy`]; waits for the device.
    pub fn read(totals: &Tensor) -> Result<Self> {
        let values = read(totals)?;
        Ok(Self { loss_sum: values[0], correct: values[1] as usize })
    }
}

/// Computes the loss of `logits_mv` and the number of correct predictions. A label that is not below `V` is
/// an error that names it.
pub fn forward<'a>(logits_mv: &Tensor, labels: impl Into<Indices<'a>>) -> Result<Entropy> {
    forward_compiled(logits_mv, labels.into())
}

fn forward_compiled(logits_mv: &Tensor, labels: Indices<'_>) -> Result<Entropy> {
    check(logits_mv, labels)?;
    match Gpu::of(logits_mv)? {
        None => by_dtype!("cross entropy", logits_mv, T => cpu::forward::<T>(logits_mv, labels.host())),
        Some(gpu) => cuda::forward(&gpu, logits_mv, labels),
    }
}

/// Returns `dlogits_mv`, written over the logits: all other handles of that tensor have the gradient
/// afterwards, too.
pub fn backward<'a>(
    logits_mv: Tensor,
    labels: impl Into<Indices<'a>>,
    log_sum_exp_m: &Tensor,
    scale: f32,
) -> Result<Tensor> {
    backward_compiled(logits_mv, labels.into(), log_sum_exp_m, scale)
}

fn backward_compiled(
    logits_mv: Tensor,
    labels: Indices<'_>,
    log_sum_exp_m: &Tensor,
    scale: f32,
) -> Result<Tensor> {
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
