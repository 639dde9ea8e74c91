//! The divergence from a teacher, composed of candle functions.

use candle_core::{D, Result, Tensor};

/// `t^2` times the Kullback-Leibler divergence of `softmax(z / t)` from `softmax(log(p) / t)`, summed over the
/// rows to a scalar.
pub fn forward(logits_mc: &Tensor, teacher_mc: &Tensor, temperature: f64) -> Result<Tensor> {
    let log_softmax = |logits: &Tensor| candle_nn::ops::log_softmax(&(logits / temperature)?, D::Minus1);
    let log_student = log_softmax(logits_mc)?;
    let log_teacher = log_softmax(&teacher_mc.log()?)?;
    let divergence = log_teacher.exp()?.mul(&(log_teacher - log_student)?)?.sum_all()?;
    divergence * (temperature * temperature)
}
