//! Bias, dropout, residual and layer normalisation on the CPU: all steps for one row, which stays in the
//! cache, then the next row.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::dropout::Dropout;
use crate::element::Element;
use crate::layer_norm::cpu::{Room, backward_row, forward_row, saved as moments_to_save, saved_moments};
use crate::parallel;
use crate::residual_norm::{Saved, WeightGradients, Weights};
use crate::simd::kernel;
use crate::tensor::{assume_written, from_vec, unwritten, values, values_or_zeros, with_slice_mut};

pub(super) fn forward<T: Element>(
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    row_keys: &[u64],
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Saved)> {
    let hidden = x_td.dims2()?.1;
    let (x, residual) = (values::<T>(x_td)?, values::<T>(residual_td)?);
    let weight = values::<f32>(weights.norm_weight)?;
    let eps = weights.eps;
    let [bias, norm_bias] = [weights.bias, weights.norm_bias].map(|bias| values_or_zeros(bias, hidden));
    let bias = bias?;
    let norm_bias = norm_bias?;
    let len = x.len();
    let mut sum = Vec::new();
    let mut y = Vec::new();
    let outputs = (unwritten(&mut sum, len), unwritten(&mut y, len));
    let moments = parallel::map_rows2(outputs.0, outputs.1, hidden, |rows, sum, y| {
        let mut room = vec![0.0; hidden];
        let outputs = sum.chunks_exact_mut(hidden).zip(y.chunks_exact_mut(hidden));
        rows.zip(outputs)
            .map(|(row, (sum, y))| {
                let at = row * hidden..(row + 1) * hidden;
                let keep = dropout.map(|dropout| (dropout, row_keys[row]));
                add_row(&x[at.clone()], &bias, &residual[at], keep, &mut room, &mut *sum);
                // SAFETY: `add_row` has written the whole row.
                let sum = unsafe { assume_written(sum) };
                // The moments are those of the rounded sum, which backward reads, too.
                forward_row(weights.form, &*sum, &mut room, &weight, &norm_bias, eps, y)
            })
            .collect::<Vec<_>>()
    });
    // SAFETY: `add_row` and `forward_row` have written every row of both.
    unsafe {
        sum.set_len(len);
        y.set_len(len);
    }
    Ok((
        from_vec(y, x_td.shape())?,
        Saved {
            sum_td: from_vec(sum, x_td.shape())?,
            moments: moments_to_save(weights.form, &moments)?,
            kept: None,
        },
    ))
}

kernel! {
    /// `sum = residual + keep * (x + bias)` for one row; `room` has space for the factors `keep`.
    fn add_row<T>(x: &[T], bias: &[f32], residual: &[T], keep: Option<(&Dropout, u64)>, room: &mut [f32], sum: &mut [MaybeUninit<T>]) {
        let len = sum.len();
        let x = &x[..len];
        let bias = &bias[..len];
        let residual = &residual[..len];
        let room = &mut room[..len];
        if let Some((dropout, row_key)) = keep {
            dropout.keep_row(row_key, room);
            for i in 0..len {
                sum[i].write(T::narrow(room[i].mul_add(x[i].widen() + bias[i], residual[i].widen())));
            }
        } else {
            for i in 0..len {
                sum[i].write(T::narrow(residual[i].widen() + (x[i].widen() + bias[i])));
            }
        }
    }
}

pub(super) fn backward<T: Element>(
    dy_td: &Tensor,
    d_sum_td: Option<&Tensor>,
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: &[u64],
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let hidden = dy_td.dims2()?.1;
    let (dresidual, dx, sums) = {
        let (dy, sum, weight) =
            (values::<T>(dy_td)?, values::<T>(&saved.sum_td)?, values::<f32>(norm_weight_d)?);
        let moments = saved_moments(&saved.moments)?;
        let d_sum = d_sum_td.map(values::<T>).transpose()?;
        let norm_row = |row: usize, room: &mut Room, dsum: &mut [MaybeUninit<T>], sums: [&mut [f32]; 2]| {
            let inputs = [&dy[row * hidden..], &sum[row * hidden..]];
            let more = d_sum.as_ref().map(|d_sum| &d_sum[row * hidden..]);
            backward_row(inputs, more, &weight, moments[row], room, dsum, sums);
        };
        let len = dy.len();
        let mut dresidual = Vec::new();
        let mut dx = Vec::new();
        let dsum = unwritten(&mut dresidual, len);
        let sums = if let Some(dropout) = dropout {
            let outputs = (dsum, unwritten(&mut dx, len));
            let sums =
                parallel::sum_rows2(outputs.0, outputs.1, hidden, 3 * hidden, |rows, dsum, dx, sums| {
                    let mut room = Room::new(hidden);
                    let mut keep = vec![0.0; hidden];
                    let [dbias, dweight, dnorm_bias] = thirds(sums);
                    for (row, (dsum, dx)) in
                        rows.zip(dsum.chunks_exact_mut(hidden).zip(dx.chunks_exact_mut(hidden)))
                    {
                        norm_row(row, &mut room, dsum, [&mut *dweight, &mut *dnorm_bias]);
                        drop_row(dropout, row_keys[row], &room.dx, &mut keep, dx, &mut *dbias);
                    }
                });
            // SAFETY: `drop_row` has written every row.
            unsafe { dx.set_len(len) };
            sums
        } else {
            parallel::sum_rows(dsum, hidden, 3 * hidden, |rows, dsum, sums| {
                let mut room = Room::new(hidden);
                let [dbias, dweight, dnorm_bias] = thirds(sums);
                for (row, dsum) in rows.zip(dsum.chunks_exact_mut(hidden)) {
                    norm_row(row, &mut room, dsum, [&mut *dweight, &mut *dnorm_bias]);
                    parallel::add_in_order(dbias, [room.dx.as_slice()]);
                }
            })
        };
        // SAFETY: `norm_row` has written every row.
        unsafe { dresidual.set_len(len) };
        (dresidual, dx, sums)
    };
    for (third, acc) in [into.dbias, Some(into.dnorm_weight), into.dnorm_bias].into_iter().enumerate() {
        if let Some(acc) = acc {
            with_slice_mut(acc.begin()?, |acc| sums.add_to(acc, third * hidden))?;
        }
    }
    let dresidual = from_vec(dresidual, dy_td.shape())?;
    let dx = if dropout.is_some() { from_vec(dx, dy_td.shape())? } else { dresidual.clone() };
    Ok((dx, dresidual))
}

/// Splits the sums of a block into those for the gradients of bias, norm weight and norm bias.
fn thirds(sums: &mut [f32]) -> [&mut [f32]; 3] {
    let (bias, norm) = sums.split_at_mut(sums.len() / 3);
    let (weight, norm_bias) = norm.split_at_mut(norm.len() / 2);
    [bias, weight, norm_bias]
}

kernel! {
    /// `dx = keep * dsum` for one row; adds the unrounded values to `dbias`.
    fn drop_row<T>(dropout: &Dropout, row_key: u64, dsum: &[f32], keep: &mut [f32], dx: &mut [MaybeUninit<T>], dbias: &mut [f32]) {
        let len = dx.len();
        let dsum = &dsum[..len];
        let keep = &mut keep[..len];
        let dbias = &mut dbias[..len];
        dropout.keep_row(row_key, keep);
        for i in 0..len {
            let value = keep[i] * dsum[i];
            dx[i].write(T::narrow(value));
            dbias[i] += value;
        }
    }
}
