//! The op on the CPU: one pass over the rows for the logits, and one for the gradients.

use candle_core::{Result, Tensor};
use rayon::iter::ParallelIterator;

use crate::element::Element;
use crate::linear_binary_cross_entropy::Map;
use crate::sigmoid_cross_entropy::sigmoid;
use crate::simd::kernel;
use crate::tensor::{from_vec, values, with_slice_mut};
use crate::{parallel, simd};

pub(super) fn logits<T: Element>(x_md: &Tensor, map: Map<'_>) -> Result<Tensor> {
    let logits = logits_of::<T>(x_md, map)?;
    let rows = logits.len();
    from_vec(logits, rows)
}

fn logits_of<T: Element>(x_md: &Tensor, map: Map<'_>) -> Result<Vec<f32>> {
    let (rows, cols) = x_md.dims2()?;
    let (x, weight, bias) = (values::<T>(x_md)?, values::<f32>(map.weight)?, values::<f32>(map.bias)?[0]);
    let blocks = parallel::blocks(rows, cols).map(|block| {
        let mut room = vec![0.0; cols];
        block.map(|m| dot(&x[m * cols..(m + 1) * cols], &weight, &mut room) + bias).collect::<Vec<f32>>()
    });
    let blocks: Vec<Vec<f32>> = blocks.collect();
    Ok(blocks.concat())
}

kernel! {
    fn dot<T>(x: &[T], weight: &[f32], room: &mut [f32]) -> f32 {
        simd::sum_of([T::widen_row(x, room), weight], |[x, w]| x * w)
    }

    fn gradient_row<T>(x: &[T], weight: &[f32], dz: f32, dx: &mut [T], dweight: &mut [f32]) {
        for (((x, w), dx), dw) in x.iter().zip(weight).zip(dx).zip(dweight) {
            *dx = T::narrow(dz * w);
            *dw = dz.mul_add(x.widen(), *dw);
        }
    }
}

pub(super) fn forward<T: Element>(x_md: &Tensor, map: Map<'_>, labels: &[u32]) -> Result<Tensor> {
    totals(&logits_of::<T>(x_md, map)?, labels)
}

/// The totals of all rows, added in order; see [`super::Totals`].
fn totals(logits: &[f32], labels: &[u32]) -> Result<Tensor> {
    let mut loss = 0.0;
    let mut correct = 0.0;
    let mut predicted = 0.0;
    let mut hits = 0.0;
    for (&logit, &label) in logits.iter().zip(labels) {
        let z = f64::from(logit);
        let is_one = label == 1;
        let predicts_one = logit > 0.0;
        // Unlike `max`, this keeps a NaN.
        let above = if z < 0.0 { 0.0 } else { z };
        loss += above - if is_one { z } else { 0.0 } + (-z.abs()).exp().ln_1p();
        correct += f64::from(u8::from(predicts_one == is_one));
        predicted += f64::from(u8::from(predicts_one));
        hits += f64::from(u8::from(predicts_one && is_one));
    }
    from_vec(vec![loss, correct, predicted, hits], 4)
}

pub(super) fn forward_backward<T: Element>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: &[u32],
    scale: f32,
    dmap: Map<'_>,
) -> Result<(Tensor, Tensor)> {
    let (rows, cols) = x_md.dims2()?;
    let logits = logits_of::<T>(x_md, map)?;
    let dz: Vec<f32> = logits.iter().zip(labels).map(|(&z, &label)| slope(z, label, scale)).collect();
    let (x, weight) = (values::<T>(x_md)?, values::<f32>(map.weight)?);
    let mut dx = vec![T::narrow(0.0); rows * cols];
    let sums = parallel::sum_rows(&mut dx, cols, cols + 1, |block, dx, sums| {
        let (dweight, dbias) = sums.split_at_mut(cols);
        for (m, dx) in block.zip(dx.chunks_exact_mut(cols.max(1))) {
            gradient_row(&x[m * cols..(m + 1) * cols], &weight, dz[m], dx, dweight);
            dbias[0] += dz[m];
        }
    });
    with_slice_mut(dmap.weight, |dweight| sums.add_to(dweight, 0))?;
    with_slice_mut(dmap.bias, |dbias| sums.add_to(dbias, cols))?;
    Ok((totals(&logits, labels)?, from_vec(dx, (rows, cols))?))
}

/// The gradient of a row's logit. `sigmoid(z) - 1` is computed as `-sigmoid(-z)`, which loses no digits if
/// the prediction is correct.
fn slope(z: f32, label: u32, scale: f32) -> f32 {
    if label == 1 { -scale * sigmoid(-z) } else { scale * sigmoid(z) }
}
