//! Layer normalisation on the CPU. A row stays in the cache for all passes over it. The variance is computed
//! from the centred row, not as a difference of mean squares, which would lose all digits for rows far from
//! zero.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::element::Element;
use crate::layer_norm::{Form, Saved};
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values, values_or_zeros, with_slice_mut};
use crate::{parallel, simd};

/// The mean of one row, `None` for RMSNorm, and its inverse standard deviation.
pub(crate) type Moments = (Option<f32>, f32);

kernel! {
    /// Normalises one row into `y`; `row` is a buffer for its values in f32.
    pub(crate) fn forward_row<T>(
        form: Form,
        x: &[T],
        row: &mut [f32],
        weight: &[f32],
        bias: &[f32],
        eps: f64,
        y: &mut [MaybeUninit<T>],
    ) -> Moments {
        let len = y.len();
        let weight = &weight[..len];
        let bias = &bias[..len];
        let x = &T::widen_row(&x[..len], row)[..len];
        let subtracted = match form {
            Form::LayerNorm => Some(simd::sum_of([x], |[v]| v) / len as f32),
            Form::RmsNorm => None,
        };
        let mean = subtracted.unwrap_or(0.0);
        let variance = simd::sum_of([x], |[v]| (v - mean) * (v - mean)) / len as f32;
        let rstd = (1.0 / (f64::from(variance) + eps).sqrt()) as f32;
        for i in 0..len {
            y[i].write(T::narrow(((x[i] - mean) * rstd).mul_add(weight[i], bias[i])));
        }
        (subtracted, rstd)
    }
}

/// Buffers for the f32 values of one row in the backward pass.
pub(crate) struct Room {
    /// The gradient of the row before it is rounded, written by [`backward_row`].
    pub(crate) dx: Vec<f32>,
    dy: Vec<f32>,
}

impl Room {
    pub(crate) fn new(hidden: usize) -> Self {
        Self { dx: vec![0.0; hidden], dy: vec![0.0; hidden] }
    }
}

/// Writes the gradient of one row to `dx`, and adds to the sums over rows, `[dweight, dbias]`. `inputs` are
/// the gradient of the output and the input; `more` is added to the gradient before it is rounded.
#[inline]
pub(crate) fn backward_row<T: Element>(
    inputs: [&[T]; 2],
    more: Option<&[T]>,
    weight: &[f32],
    moments: Moments,
    room: &mut Room,
    dx: &mut [MaybeUninit<T>],
    sums: [&mut [f32]; 2],
) {
    backward_values(inputs, more, weight, moments, [&mut room.dx, &mut room.dy], dx, sums);
}

kernel! {
    fn backward_values<T>(
        inputs: [&[T]; 2],
        more: Option<&[T]>,
        weight: &[f32],
        moments: Moments,
        room: [&mut [f32]; 2],
        dx: &mut [MaybeUninit<T>],
        sums: [&mut [f32]; 2],
    ) {
        let len = dx.len();
        let [dy, x] = inputs.map(|input| &input[..len]);
        let (subtracted, rstd) = moments;
        let mean = subtracted.unwrap_or(0.0);
        let weight = &weight[..len];
        let [row, room] = room.map(|room| &mut room[..len]);
        let [dweight, dbias] = sums.map(|sums| &mut sums[..len]);
        let dy = &T::widen_row(dy, room)[..len];
        // `row` has the normalised values until the sums are known, then the gradient.
        for i in 0..len {
            row[i] = (x[i].widen() - mean) * rstd;
        }
        let gradient_mean = match subtracted {
            Some(_) => simd::sum_of([dy, weight], |[dy, weight]| dy * weight) / len as f32,
            None => 0.0,
        };
        let gradient_dot = simd::sum_of([dy, weight, &*row], |[dy, weight, normalised]| dy * weight * normalised) / len as f32;
        let mut gradient = |i: usize, normalised: f32| {
            dweight[i] = dy[i].mul_add(normalised, dweight[i]);
            dbias[i] += dy[i];
            rstd * (dy[i].mul_add(weight[i], -gradient_mean) - normalised * gradient_dot)
        };
        if let Some(more) = more {
            let more = &more[..len];
            for i in 0..len {
                row[i] = gradient(i, row[i]) + more[i].widen();
                dx[i].write(T::narrow(row[i]));
            }
        } else {
            for i in 0..len {
                row[i] = gradient(i, row[i]);
                dx[i].write(T::narrow(row[i]));
            }
        }
    }
}

/// Makes the saved tensors from the moments of each block of rows.
pub(crate) fn saved(form: Form, blocks: &[Vec<Moments>]) -> Result<Saved> {
    let (mean, rstd): (Vec<Option<f32>>, Vec<f32>) = blocks.iter().flatten().copied().unzip();
    let tokens = rstd.len();
    let mean_t = match form {
        Form::LayerNorm => Some(from_vec(mean.into_iter().flatten().collect::<Vec<f32>>(), tokens)?),
        Form::RmsNorm => None,
    };
    Ok(Saved { mean_t, rstd_t: from_vec(rstd, tokens)? })
}

/// The moments of each row that forward saved.
pub(crate) fn saved_moments(saved: &Saved) -> Result<Vec<Moments>> {
    let rstd = values::<f32>(&saved.rstd_t)?;
    Ok(match &saved.mean_t {
        Some(mean_t) => {
            values::<f32>(mean_t)?.iter().map(|&mean| Some(mean)).zip(rstd.iter().copied()).collect()
        }
        None => rstd.iter().map(|&rstd| (None, rstd)).collect(),
    })
}

pub(super) fn forward<T: Element>(
    form: Form,
    x_td: &Tensor,
    weight_d: &Tensor,
    bias_d: Option<&Tensor>,
    eps: f64,
) -> Result<(Tensor, Saved)> {
    let hidden = x_td.dims2()?.1;
    let (x, weight) = (values::<T>(x_td)?, values::<f32>(weight_d)?);
    let bias = values_or_zeros(bias_d, hidden)?;
    let mut y = Vec::new();
    let moments = parallel::map_rows(unwritten(&mut y, x.len()), hidden, |rows, y| {
        let mut room = vec![0.0; hidden];
        rows.zip(y.chunks_exact_mut(hidden))
            .map(|(row, y)| forward_row(form, &x[row * hidden..], &mut room, &weight, &bias, eps, y))
            .collect::<Vec<_>>()
    });
    // SAFETY: `forward_row` has written every row.
    unsafe { y.set_len(x.len()) };
    Ok((from_vec(y, x_td.shape())?, saved(form, &moments)?))
}

pub(super) fn backward<T: Element>(
    dy_td: &Tensor,
    x_td: &Tensor,
    weight_d: &Tensor,
    saved: &Saved,
    dweight_d: &Tensor,
    dbias_d: Option<&Tensor>,
) -> Result<Tensor> {
    let hidden = x_td.dims2()?.1;
    let (dx, sums) = {
        let (dy, x, weight) = (values::<T>(dy_td)?, values::<T>(x_td)?, values::<f32>(weight_d)?);
        let moments = saved_moments(saved)?;
        let mut dx = Vec::new();
        let sums = parallel::sum_rows(unwritten(&mut dx, x.len()), hidden, 2 * hidden, |rows, dx, sums| {
            let mut room = Room::new(hidden);
            let (dweight, dbias) = sums.split_at_mut(hidden);
            for (row, dx) in rows.zip(dx.chunks_exact_mut(hidden)) {
                let inputs = [&dy[row * hidden..], &x[row * hidden..]];
                backward_row(inputs, None, &weight, moments[row], &mut room, dx, [dweight, dbias]);
            }
        });
        // SAFETY: `backward_row` has written every row.
        unsafe { dx.set_len(x.len()) };
        (dx, sums)
    };
    with_slice_mut(dweight_d, |acc| sums.add_to(acc, 0))?;
    if let Some(dbias_d) = dbias_d {
        with_slice_mut(dbias_d, |acc| sums.add_to(acc, hidden))?;
    }
    from_vec(dx, x_td.shape())
}
