//! Bias, dropout, residual and layer normalisation on the CPU, row by row while the row is in the cache.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::dropout::Dropout;
use crate::ops::layer_norm::cpu::backward_row;
use crate::ops::layer_norm::cpu::forward_row;
use crate::ops::layer_norm::cpu::saved as saved_moments;
use crate::ops::parallel;
use crate::ops::residual_norm::Saved;
use crate::ops::residual_norm::WeightGradients;
use crate::ops::residual_norm::Weights;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::with_slices;

pub(super) fn forward(
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    row_keys: &[u64],
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Saved)> {
    let hidden = x_td.dims2()?.1;
    let (mut sum, mut y) = (vec![0.0; x_td.elem_count()], vec![0.0; x_td.elem_count()]);
    let (inputs, eps) = ([x_td, weights.bias, residual_td, weights.norm_weight, weights.norm_bias], weights.eps);
    let moments = with_slices(inputs, |[x, bias, residual, weight, norm_bias]| {
        parallel::map_rows2(&mut sum, &mut y, hidden, |rows, sum, y| {
            let row = |(row, (sum, y)): (usize, (&mut [f32], &mut [f32]))| {
                let at = row * hidden..(row + 1) * hidden;
                let keep = dropout.map(|dropout| (dropout, row_keys[row]));
                add_row(&x[at.clone()], bias, &residual[at], keep, &mut *sum);
                forward_row(sum, weight, norm_bias, eps, y)
            };
            rows.zip(sum.chunks_exact_mut(hidden).zip(y.chunks_exact_mut(hidden))).map(row).collect::<Vec<_>>()
        })
    })?;
    Ok((from_vec(y, x_td.shape())?, Saved { sum_td: from_vec(sum, x_td.shape())?, moments: saved_moments(&moments)? }))
}

kernel! {
    /// `sum = residual + keep * (x + bias)` for one row.
    fn add_row(x: &[f32], bias: &[f32], residual: &[f32], keep: Option<(&Dropout, u64)>, sum: &mut [f32]) {
        let len = sum.len();
        let (x, bias, residual) = (&x[..len], &bias[..len], &residual[..len]);
        if let Some((dropout, row_key)) = keep {
            dropout.keep_row(row_key, sum);
            for i in 0..len {
                sum[i] = sum[i].mul_add(x[i] + bias[i], residual[i]);
            }
        } else {
            for i in 0..len {
                sum[i] = residual[i] + (x[i] + bias[i]);
            }
        }
    }
}

pub(super) fn backward(
    dy_td: &Tensor,
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: &[u64],
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let hidden = dy_td.dims2()?.1;
    let mut dresidual = vec![0.0; dy_td.elem_count()];
    let mut dx = vec![0.0; if dropout.is_some() { dresidual.len() } else { 0 }];
    let inputs = [dy_td, &saved.sum_td, norm_weight_d, &saved.moments.mean_t, &saved.moments.rstd_t];
    let partials = with_slices(inputs, |[dy, sum, weight, mean, rstd]| {
        let norm_row = |row: usize, dsum: &mut [f32], sums: &mut Sums| {
            let at = row * hidden..(row + 1) * hidden;
            let inputs = [&dy[at.clone()], &sum[at], weight];
            backward_row(inputs, (mean[row], rstd[row]), dsum, &mut sums.weight, &mut sums.norm_bias);
        };
        if let Some(dropout) = dropout {
            parallel::map_rows2(&mut dresidual, &mut dx, hidden, |rows, dsum, dx| {
                let mut sums = Sums::new(hidden);
                for (row, (dsum, dx)) in rows.zip(dsum.chunks_exact_mut(hidden).zip(dx.chunks_exact_mut(hidden))) {
                    norm_row(row, dsum, &mut sums);
                    drop_row(dropout, row_keys[row], &*dsum, dx, &mut sums.bias);
                }
                sums
            })
        } else {
            parallel::map_rows(&mut dresidual, hidden, |rows, dsum| {
                let mut sums = Sums::new(hidden);
                for (row, dsum) in rows.zip(dsum.chunks_exact_mut(hidden)) {
                    norm_row(row, dsum, &mut sums);
                    parallel::add_in_order(&mut sums.bias, [&*dsum]);
                }
                sums
            })
        }
    })?;
    with_slice_mut(into.dbias, |acc| parallel::add_in_order(acc, partials.iter().map(|p| p.bias.as_slice())))?;
    with_slice_mut(into.dnorm_weight, |acc| parallel::add_in_order(acc, partials.iter().map(|p| p.weight.as_slice())))?;
    with_slice_mut(into.dnorm_bias, |acc| parallel::add_in_order(acc, partials.iter().map(|p| p.norm_bias.as_slice())))?;
    let dresidual = from_vec(dresidual, dy_td.shape())?;
    let dx = if dropout.is_some() { from_vec(dx, dy_td.shape())? } else { dresidual.clone() };
    Ok((dx, dresidual))
}

kernel! {
    /// `dx = keep * dsum` for one row, added to the gradient of the bias.
    fn drop_row(dropout: &Dropout, row_key: u64, dsum: &[f32], dx: &mut [f32], dbias: &mut [f32]) {
        dropout.keep_row(row_key, dx);
        for ((dx, dsum), dbias) in dx.iter_mut().zip(dsum).zip(dbias) {
            *dx *= dsum;
            *dbias += *dx;
        }
    }
}

/// The gradients of the three vectors over one block of rows.
struct Sums {
    bias: Vec<f32>,
    weight: Vec<f32>,
    norm_bias: Vec<f32>,
}

impl Sums {
    fn new(hidden: usize) -> Self {
        Self { bias: vec![0.0; hidden], weight: vec![0.0; hidden], norm_bias: vec![0.0; hidden] }
    }
}
