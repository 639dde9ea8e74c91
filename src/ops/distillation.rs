//! Divergence of a model's classes from the probabilities of a teacher, both softened by a temperature
//! (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015, section 2).
//!
//! Forward, for logits `z` `[M, C]`, probabilities of the teacher `p` `[M, C]` and temperature `t`: with
//! `q = softmax(log(p) / t)`, `loss_sum = t^2 sum over m, c of q (log(q) - log softmax(z / t))`. The factor
//! `t^2` keeps the gradient about as large as without softening. The loss is a *sum*, because it is divided
//! by the number of examples of the whole step.
//!
//! Backward: `dz[m, c] = scale t (softmax(z / t)[m, c] - q[m, c])`, with `scale` the gradient of the step's
//! loss with respect to `loss_sum`.
//!
//! Logits are f32, bf16 or f16, and their gradient has the same dtype; the arithmetic is f64. There are few
//! classes and only one row for each example, so they are computed on the CPU, which waits for a GPU.

pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Result, Tensor};

use crate::tensor::{check_len, from_vec};

/// Smallest probability whose logarithm is taken: the smallest normal f32 number.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

/// Returns the summed loss. `teacher_mc` has the probabilities of each row after the other.
pub fn forward(logits_mc: &Tensor, teacher_mc: &[f32], temperature: f64) -> Result<f64> {
    let mut sum = 0.0;
    for_each_row(logits_mc, teacher_mc, temperature, |log_student, log_teacher| {
        for (student, teacher) in log_student.iter().zip(log_teacher) {
            sum += teacher.exp() * (teacher - student);
        }
    })?;
    Ok(sum * temperature * temperature)
}

/// Returns the gradient of the logits, `[M, C]`.
pub fn backward(logits_mc: &Tensor, teacher_mc: &[f32], temperature: f64, scale: f32) -> Result<Tensor> {
    let scale = f64::from(scale) * temperature;
    let mut gradient = Vec::with_capacity(teacher_mc.len());
    for_each_row(logits_mc, teacher_mc, temperature, |log_student, log_teacher| {
        let differences =
            log_student.iter().zip(log_teacher).map(|(student, teacher)| student.exp() - teacher.exp());
        gradient.extend(differences.map(|difference| (scale * difference) as f32));
    })?;
    from_vec(gradient, logits_mc.dims2()?)?.to_dtype(logits_mc.dtype())?.to_device(logits_mc.device())
}

/// Calls `each` with the logarithms of the softened probabilities of the model and of the teacher, row by row.
fn for_each_row(
    logits_mc: &Tensor,
    teacher_mc: &[f32],
    temperature: f64,
    mut each: impl FnMut(&[f64], &[f64]),
) -> Result<()> {
    let (rows, classes) = logits_mc.dims2()?;
    check_len("distillation: probabilities of the teacher", teacher_mc.len(), rows * classes)?;
    let logits = logits_mc.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let mut log_student = vec![0.0; classes];
    let mut log_teacher = vec![0.0; classes];
    for (logits, probabilities) in logits.iter().zip(teacher_mc.chunks(classes.max(1))) {
        for (class, (logit, probability)) in logits.iter().zip(probabilities).enumerate() {
            log_student[class] = f64::from(*logit) / temperature;
            log_teacher[class] = f64::from(*probability).max(SMALLEST).ln() / temperature;
        }
        log_softmax(&mut log_student);
        log_softmax(&mut log_teacher);
        each(&log_student, &log_teacher);
    }
    Ok(())
}

/// Replaces logits by the logarithms of their probabilities.
fn log_softmax(values: &mut [f64]) {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().map(|value| (value - largest).exp()).sum();
    let log_sum = largest + sum.ln();
    for value in values {
        *value -= log_sum;
    }
}
