//! Layer normalisation on the CPU: a row stays in the cache for all its passes; the variance is that of the centred row,
//! not a difference of squares, which would lose all digits for rows far from zero.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::layer_norm::Saved;
use crate::ops::parallel;
use crate::ops::simd;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::with_slices;

/// The mean and inverse standard deviation of one row.
pub(in crate::ops) type Moments = (f32, f32);

kernel! {
    /// Normalises one row into `y`.
    pub(in crate::ops) fn forward_row(x: &[f32], weight: &[f32], bias: &[f32], eps: f64, y: &mut [f32]) -> Moments {
        let len = y.len();
        let (x, weight, bias) = (&x[..len], &weight[..len], &bias[..len]);
        let mean = simd::sum_by(len, |i| x[i]) / len as f32;
        let variance = simd::sum_by(len, |i| (x[i] - mean) * (x[i] - mean)) / len as f32;
        let rstd = (1.0 / (f64::from(variance) + eps).sqrt()) as f32;
        for i in 0..len {
            y[i] = ((x[i] - mean) * rstd).mul_add(weight[i], bias[i]);
        }
        (mean, rstd)
    }
}

kernel! {
    /// The gradient of one row into `dx`; adds to the sums over rows.
    pub(in crate::ops) fn backward_row(inputs: [&[f32]; 3], moments: Moments, dx: &mut [f32], dweight: &mut [f32], dbias: &mut [f32]) {
        let len = dx.len();
        let ([dy, x, weight], (mean, rstd)) = (inputs.map(|input| &input[..len]), moments);
        let (dweight, dbias) = (&mut dweight[..len], &mut dbias[..len]);
        // The normalised row lies in `dx` until the sums are known.
        for i in 0..len {
            dx[i] = (x[i] - mean) * rstd;
        }
        let gradient_mean = simd::sum_by(len, |i| dy[i] * weight[i]) / len as f32;
        let gradient_dot = simd::sum_by(len, |i| dy[i] * weight[i] * dx[i]) / len as f32;
        for i in 0..len {
            let normalised = dx[i];
            dweight[i] = dy[i].mul_add(normalised, dweight[i]);
            dbias[i] += dy[i];
            dx[i] = rstd * (dy[i].mul_add(weight[i], -gradient_mean) - normalised * gradient_dot);
        }
    }
}

/// The saved tensors from the moments of each block of rows.
pub(in crate::ops) fn saved(blocks: &[Vec<Moments>]) -> Result<Saved> {
    let (mean, rstd): (Vec<f32>, Vec<f32>) = blocks.iter().flatten().copied().unzip();
    let tokens = mean.len();
    Ok(Saved { mean_t: from_vec(mean, tokens)?, rstd_t: from_vec(rstd, tokens)? })
}

pub(super) fn forward(x_td: &Tensor, weight_d: &Tensor, bias_d: &Tensor, eps: f64) -> Result<(Tensor, Saved)> {
    let hidden = x_td.dims2()?.1;
    let mut y = vec![0.0; x_td.elem_count()];
    let moments = with_slices([x_td, weight_d, bias_d], |[x, weight, bias]| {
        parallel::map_rows(&mut y, hidden, |rows, y| {
            let row = |(row, y): (usize, &mut [f32])| forward_row(&x[row * hidden..], weight, bias, eps, y);
            rows.zip(y.chunks_exact_mut(hidden)).map(row).collect::<Vec<_>>()
        })
    })?;
    Ok((from_vec(y, x_td.shape())?, saved(&moments)?))
}

pub(super) fn backward(
    dy_td: &Tensor,
    x_td: &Tensor,
    weight_d: &Tensor,
    saved: &Saved,
    dweight_d: &Tensor,
    dbias_d: &Tensor,
) -> Result<Tensor> {
    let hidden = x_td.dims2()?.1;
    let mut dx = vec![0.0; x_td.elem_count()];
    let inputs = [dy_td, x_td, weight_d, &saved.mean_t, &saved.rstd_t];
    let partials = with_slices(inputs, |[dy, x, weight, mean, rstd]| {
        parallel::map_rows(&mut dx, hidden, |rows, dx| {
            let (mut dweight, mut dbias) = (vec![0.0; hidden], vec![0.0; hidden]);
            for (row, dx) in rows.zip(dx.chunks_exact_mut(hidden)) {
                let inputs = [&dy[row * hidden..], &x[row * hidden..], weight];
                backward_row(inputs, (mean[row], rstd[row]), dx, &mut dweight, &mut dbias);
            }
            (dweight, dbias)
        })
    })?;
    with_slice_mut(dweight_d, |acc| parallel::add_in_order(acc, partials.iter().map(|p| p.0.as_slice())))?;
    with_slice_mut(dbias_d, |acc| parallel::add_in_order(acc, partials.iter().map(|p| p.1.as_slice())))?;
    from_vec(dx, x_td.shape())
}
