//! Softmax cross-entropy on the CPU: two passes over a row in forward, one pass in place in backward.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};
use rayon::iter::ParallelIterator;

use crate::cross_entropy::Entropy;
use crate::element::Element;
use crate::simd::kernel;
use crate::tensor::{from_vec, values, with_values_mut};
use crate::{parallel, simd};

/// Number of columns of a chunk. Exponentials are added in f32 within a chunk, and in f64 over the chunks,
/// because a vocabulary is too long for one f32 sum. A chunk is also widened to f32 at once, and fits into
/// the L1 cache.
const SUM_COLUMNS: usize = 4096;

/// A buffer for the f32 values of one chunk of a row of `classes` logits.
pub(crate) fn chunk_room(classes: usize) -> Vec<f32> {
    vec![0.0; SUM_COLUMNS.min(classes)]
}

pub(super) fn forward<T: Element>(logits_mv: &Tensor, labels: &[u32]) -> Result<Entropy> {
    let classes = logits_mv.dims2()?.1;
    let logits = values::<T>(logits_mv)?;
    let blocks = parallel::blocks(labels.len(), classes).map(|block| {
        let mut room = chunk_room(classes);
        block
            .map(|m| forward_row(&logits[m * classes..(m + 1) * classes], labels[m] as usize, &mut room))
            .collect::<Vec<Row>>()
    });
    let rows: Vec<Vec<Row>> = blocks.collect();
    entropy(&rows.concat())
}

/// Adds the results of the rows, in order.
pub(crate) fn entropy(rows: &[Row]) -> Result<Entropy> {
    let loss_sum: f64 = rows.iter().map(|row| row.loss).sum();
    let correct = rows.iter().filter(|row| row.correct).count();
    let log_sum_exp = rows.iter().map(|row| row.log_sum_exp).collect();
    Ok(Entropy {
        totals: from_vec(vec![loss_sum, correct as f64], 2)?,
        log_sum_exp_m: from_vec::<f32>(log_sum_exp, rows.len())?,
    })
}

/// The result of one row of logits.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    loss: f64,
    correct: bool,
    pub(crate) log_sum_exp: f32,
}

kernel! {
    /// Computes loss, correctness and log-sum-exp of one row; `room` is a buffer from [`chunk_room`].
    pub(crate) fn forward_row<T>(logits: &[T], label: usize, room: &mut [f32]) -> Row {
        let mut max = f32::NEG_INFINITY;
        for chunk in logits.chunks(SUM_COLUMNS) {
            let largest = simd::max(T::widen_row(chunk, &mut *room));
            max = if largest > max { largest } else { max };
        }
        let mut sum = 0.0;
        for chunk in logits.chunks(SUM_COLUMNS) {
            sum += f64::from(simd::sum_exp(T::widen_row(chunk, &mut *room), max));
        }
        let log_sum_exp = f64::from(max) + sum.ln();
        let at_label = logits[label].widen();
        // If several logits are largest, the prediction is the first of them.
        let correct = at_label >= max && all_below(&logits[..label], max);
        Row { loss: log_sum_exp - f64::from(at_label), correct, log_sum_exp: log_sum_exp as f32 }
    }

    /// The gradient of one row's logits, times `scale`.
    pub(crate) fn gradient_row<T>(logits: &[f32], label: usize, log_sum_exp: f32, scale: f32, out: &mut [MaybeUninit<T>]) {
        for (out, z) in out.iter_mut().zip(logits) {
            out.write(T::narrow(scale * simd::exp_f32(z - log_sum_exp)));
        }
        // The gradient of the label's logit is a difference; it is rounded once, after the subtraction.
        out[label].write(T::narrow(scale * simd::exp_f32(logits[label] - log_sum_exp) - scale));
    }
}

/// Returns true if all logits are below `limit`. Reads every value, because a loop that may end early does
/// not vectorise.
#[inline(always)]
fn all_below<T: Element>(logits: &[T], limit: f32) -> bool {
    logits.iter().fold(true, |all, z| all & (z.widen() < limit))
}

pub(super) fn backward<T: Element>(
    logits_mv: &Tensor,
    labels: &[u32],
    log_sum_exp_m: &Tensor,
    scale: f32,
) -> Result<()> {
    let classes = logits_mv.dims2()?.1;
    let log_sum_exp = values::<f32>(log_sum_exp_m)?;
    with_values_mut::<T, _>(logits_mv, |logits| {
        parallel::for_rows(logits, classes, |rows, logits| {
            for (m, z) in rows.zip(logits.chunks_exact_mut(classes)) {
                softmax_row(z, labels[m] as usize, log_sum_exp[m], scale);
            }
        });
    })
}

kernel! {
    fn softmax_row<T>(z: &mut [T], label: usize, log_sum_exp: f32, scale: f32) {
        // The gradient of the label's logit is a difference; it is rounded once, after the subtraction.
        let at_label = scale * simd::exp_f32(z[label].widen() - log_sum_exp) - scale;
        for z in &mut *z {
            *z = T::narrow(scale * simd::exp_f32(z.widen() - log_sum_exp));
        }
        z[label] = T::narrow(at_label);
    }
}
