//! Bias, dropout, residual and layer normalisation on the GPU: one pass over the rows in forward, one in
//! backward.

use candle_core::{DType, Result, Tensor, bail};

use crate::cuda::{Address, Array, Gpu, Kernel};
use crate::dropout::{Dropout, DropoutArgs};
use crate::indices::Indices;
use crate::layer_norm::cuda::{BackwardInputs, ByWidth, Norm, NormBackward, outputs};
use crate::residual_norm::{OutputGradients, Saved, WeightGradients, Weights, kept_bytes};
use crate::tensor::check_shape;

const FORWARD: Kernel = Kernel { op: "residual_norm", name: "residual_norm_forward" };
const BACKWARD: ByWidth = ByWidth {
    op: "residual_norm",
    held: "residual_norm_backward_held",
    earlier: [(768, "residual_norm_backward_768_earlier"), (1024, "residual_norm_backward_1024_earlier")],
    any: "residual_norm_backward_any",
};

/// Same layout as `ForwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ForwardArgs {
    x: Address,
    residual: Address,
    bias: Address,
    row_keys: Address,
    sum: Address,
    kept: Address,
    norm: Norm,
    dropout: DropoutArgs,
}

pub(super) fn forward(
    gpu: &Gpu,
    x_td: &Tensor,
    residual_td: &Tensor,
    weights: &Weights<'_>,
    row_keys: Indices<'_, u64>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Saved)> {
    let dtype = x_td.dtype();
    let (rows, cols) = x_td.dims2()?;
    let (y, moments) = outputs(weights.form, gpu, [rows, cols], dtype)?;
    let sum_td = gpu.uninitialised((rows, cols), dtype)?;
    let (x, residual, sum) =
        (gpu.input(x_td, dtype)?, gpu.input(residual_td, dtype)?, gpu.output(&sum_td, dtype)?);
    let bias = weights.bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
    let Weights { norm_weight, norm_bias, eps, .. } = *weights;
    let norm = Norm::new(gpu, norm_weight, norm_bias, eps, &y, &moments, &[x, residual, sum, bias])?;
    let (row_keys, _keys) = keys(gpu, row_keys, dropout)?;
    let kept = dropout.map(|_| gpu.uninitialised(kept_words(rows, cols), DType::U32)).transpose()?;
    let kept_at = kept.as_ref().map_or(Ok(Address::NULL), |kept| gpu.output(kept, DType::U32))?;
    let dropout = DropoutArgs::of(dropout);
    let args = ForwardArgs { x, residual, bias, row_keys, sum, kept: kept_at, norm, dropout };
    // SAFETY: `x`, the residual, the sum and `y` are `[rows, cols]`; the vectors are `[cols]` or null; the
    // moments are `[rows]`. With dropout, the keys are `[rows]`, and the decisions have a bit for each value.
    unsafe { gpu.launch(FORWARD, Some(dtype), norm.grid(), &args) }?;
    Ok((y, Saved { sum_td, moments, kept }))
}

/// Number of `u32` words for the decisions of dropout, one bit for each value.
fn kept_words(rows: usize, cols: usize) -> usize {
    kept_bytes(rows as u64, cols as u64) as usize / size_of::<u32>()
}

/// Same layout as `BackwardArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct BackwardArgs {
    dropped: Address,
    row_keys: Address,
    kept: Address,
    norm: NormBackward,
    dropout: DropoutArgs,
}

pub(super) fn backward(
    gpu: &Gpu,
    gradients: OutputGradients<'_>,
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: Indices<'_, u64>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let OutputGradients { dy_td, d_sum_td: more_td } = gradients;
    let dtype = dy_td.dtype();
    let (rows, cols) = dy_td.dims2()?;
    let dresidual = gpu.uninitialised((rows, cols), dtype)?;
    let dx = if dropout.is_some() { gpu.uninitialised((rows, cols), dtype)? } else { dresidual.clone() };
    let dropped = gpu.output(&dx, dtype)?;
    let Saved { sum_td: x_td, moments, kept } = saved;
    let inputs = BackwardInputs { dy_td, more_td, x_td, weight_d: norm_weight_d, saved: moments };
    let (norm, partials, blocks) = NormBackward::new(gpu, inputs, &dresidual, 3, &[dropped])?;
    let (row_keys, _keys) = keys(gpu, row_keys, dropout)?;
    let (kernel, grid) = norm.pick(BACKWARD, blocks);
    let kept = kept_by_forward(gpu, kept.as_ref(), kept_words(rows, cols), dropout)?;
    let args = BackwardArgs { dropped, row_keys, kept, norm, dropout: DropoutArgs::of(dropout) };
    // SAFETY: the gradients and the sum are `[rows, cols]`, the weight is `[cols]`, the moments are `[rows]`.
    // With dropout, the keys are `[rows]`, and each value has a decision. Each block has three rows of
    // partial sums.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    partials.add_to(gpu, [Some(into.dnorm_weight), into.dnorm_bias, into.dbias])?;
    Ok((dx, dresidual))
}

/// The address of the dropout decisions of the forward pass, `words` words; null without dropout.
fn kept_by_forward(
    gpu: &Gpu,
    kept: Option<&Tensor>,
    words: usize,
    dropout: Option<&Dropout>,
) -> Result<Address> {
    match (dropout, kept) {
        (None, _) => Ok(Address::NULL),
        (Some(_), None) => bail!("residual norm: backward has dropout, and forward had none"),
        (Some(_), Some(kept)) => {
            check_shape("residual norm: kept", kept, &[words])?;
            gpu.input(kept, DType::U32)
        }
    }
}

/// The address of the keys on the GPU, and the array that owns their memory; null without dropout.
fn keys(
    gpu: &Gpu,
    row_keys: Indices<'_, u64>,
    dropout: Option<&Dropout>,
) -> Result<(Address, Option<Array>)> {
    if dropout.is_none() {
        return Ok((Address::NULL, None));
    }
    let (address, keys) = row_keys.on_gpu(gpu)?;
    Ok((address, Some(keys)))
}
