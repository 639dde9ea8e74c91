//! Softmax cross-entropy on the CPU: two passes over a row forward, one in place backward.

use candle_core::Result;
use candle_core::Tensor;
use rayon::iter::ParallelIterator;

use crate::ops::cross_entropy::Entropy;
use crate::ops::parallel;
use crate::ops::simd;
use crate::ops::simd::kernel;
use crate::ops::tensor::with_slice;
use crate::ops::tensor::with_slice_mut;

/// Exponentials are added in f32 over this many columns and in f64 beyond: a vocabulary is too long for one f32 sum.
const SUM_COLUMNS: usize = 4096;

pub(super) fn forward(logits_mv: &Tensor, labels: &[u32]) -> Result<Entropy> {
    let classes = logits_mv.dims2()?.1;
    let rows: Vec<Vec<Row>> = with_slice(logits_mv, |logits| {
        let row = |m: usize| forward_row(&logits[m * classes..(m + 1) * classes], labels[m] as usize);
        parallel::blocks(labels.len(), classes).map(|block| block.map(row).collect()).collect()
    })?;
    let rows = || rows.iter().flatten();
    Ok(Entropy {
        loss_sum: rows().map(|row| row.loss).sum(),
        correct: rows().filter(|row| row.correct).count(),
        log_sum_exp: rows().map(|row| row.log_sum_exp).collect(),
    })
}

struct Row {
    loss: f64,
    correct: bool,
    log_sum_exp: f32,
}

kernel! {
    fn forward_row(logits: &[f32], label: usize) -> Row {
        let max = simd::max(logits);
        let mut sum = 0.0;
        for chunk in logits.chunks(SUM_COLUMNS) {
            sum += f64::from(simd::sum_exp(chunk, max));
        }
        let log_sum_exp = f64::from(max) + sum.ln();
        // Of equal largest logits the first is the prediction.
        let correct = logits[label] >= max && logits[..label].iter().all(|z| *z < max);
        Row { loss: log_sum_exp - f64::from(logits[label]), correct, log_sum_exp: log_sum_exp as f32 }
    }
}

pub(super) fn backward(logits_mv: Tensor, labels: &[u32], log_sum_exp: &[f32], scale: f32) -> Result<Tensor> {
    let classes = logits_mv.dims2()?.1;
    with_slice_mut(&logits_mv, |logits| {
        parallel::for_rows(logits, classes, |rows, logits| {
            for (m, z) in rows.zip(logits.chunks_exact_mut(classes)) {
                softmax_row(z, log_sum_exp[m], scale);
                z[labels[m] as usize] -= scale;
            }
        });
    })?;
    Ok(logits_mv)
}

kernel! {
    fn softmax_row(z: &mut [f32], log_sum_exp: f32, scale: f32) {
        for z in z {
            *z = scale * simd::exp_f32(*z - log_sum_exp);
        }
    }
}
