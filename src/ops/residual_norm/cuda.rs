//! Bias, dropout, residual and layer normalisation on the GPU: one pass over the rows each way.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::cuda::Address;
use crate::cuda::Array;
use crate::cuda::Gpu;
use crate::cuda::Kernel;
use crate::dropout::Dropout;
use crate::dropout::DropoutArgs;
use crate::indices::Indices;
use crate::layer_norm::cuda::BackwardInputs;
use crate::layer_norm::cuda::ByWidth;
use crate::layer_norm::cuda::Norm;
use crate::layer_norm::cuda::NormBackward;
use crate::layer_norm::cuda::outputs;
use crate::residual_norm::Saved;
use crate::residual_norm::WeightGradients;
use crate::residual_norm::Weights;
use crate::residual_norm::kept_bytes;
use crate::tensor::check_shape;

const FORWARD: Kernel = Kernel { op: "residual_norm", name: "residual_norm_forward" };
const BACKWARD: ByWidth = ByWidth {
    op: "residual_norm",
    held: "residual_norm_backward_held",
    earlier: [(768, "residual_norm_backward_768_earlier"), (1024, "residual_norm_backward_1024_earlier")],
    any: "residual_norm_backward_any",
};

/// Twin of `ForwardArgs` in `kernel.cu`.
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
    let (dtype, (rows, cols)) = (x_td.dtype(), x_td.dims2()?);
    let (y, moments) = outputs(gpu, rows, cols, dtype)?;
    let sum_td = gpu.uninitialised((rows, cols), dtype)?;
    let (x, residual, sum) =
        (gpu.input(x_td, dtype)?, gpu.input(residual_td, dtype)?, gpu.output(&sum_td, dtype)?);
    let bias = weights.bias.map_or(Ok(Address::NULL), |bias| gpu.input(bias, DType::F32))?;
    let vectors = (weights.norm_weight, weights.norm_bias);
    let norm = Norm::new(gpu, vectors, weights.eps, (&y, &moments), &[x, residual, sum, bias])?;
    let (row_keys, _keys) = keys(gpu, row_keys, dropout)?;
    let kept = dropout.map(|_| gpu.uninitialised(kept_words(rows, cols), DType::U32)).transpose()?;
    let kept_at = kept.as_ref().map_or(Ok(Address::NULL), |kept| gpu.output(kept, DType::U32))?;
    let dropout = DropoutArgs::of(dropout);
    let args = ForwardArgs { x, residual, bias, row_keys, sum, kept: kept_at, norm, dropout };
    // SAFETY: `x`, the residual, the sum and `y` are `[rows, cols]`, the vectors that there are `[cols]`, the
    // moments `[rows]`, and so are the keys where there is dropout; its decisions have a bit for each
    // value.
    unsafe { gpu.launch(FORWARD, Some(dtype), norm.grid(), &args) }?;
    Ok((y, Saved { sum_td, moments, kept }))
}

/// Number of `u32` words that hold the decisions of dropout, one bit for each value.
fn kept_words(rows: usize, cols: usize) -> usize {
    kept_bytes(rows as u64, cols as u64) as usize / size_of::<u32>()
}

/// Twin of `BackwardArgs` in `kernel.cu`.
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
    (dy_td, more_td): (&Tensor, Option<&Tensor>),
    saved: &Saved,
    norm_weight_d: &Tensor,
    into: &WeightGradients<'_>,
    row_keys: Indices<'_, u64>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    let (dtype, (rows, cols)) = (dy_td.dtype(), dy_td.dims2()?);
    let dresidual = gpu.uninitialised((rows, cols), dtype)?;
    let dx = if dropout.is_some() { gpu.uninitialised((rows, cols), dtype)? } else { dresidual.clone() };
    let dropped = gpu.output(&dx, dtype)?;
    let Saved { sum_td: x_td, moments, kept } = saved;
    let inputs = BackwardInputs { dy_td, more_td, x_td, weight_d: norm_weight_d, saved: moments };
    let (norm, partials, blocks) = NormBackward::new(gpu, inputs, &dresidual, 3, &[dropped])?;
    let (row_keys, _keys) = keys(gpu, row_keys, dropout)?;
    let (kernel, grid) = norm.pick(BACKWARD, blocks);
    let kept = kept_by_forward(gpu, kept.as_ref(), (rows, cols), dropout)?;
    let args = BackwardArgs { dropped, row_keys, kept, norm, dropout: DropoutArgs::of(dropout) };
    // SAFETY: the gradients and the sum are `[rows, cols]`, the weight `[cols]`, the moments `[rows]`, and so
    // are the keys where there is dropout, of which each value has a decision; there are three rows of
    // partial sums for each block.
    unsafe { gpu.launch(kernel, Some(dtype), grid, &args) }?;
    partials.add_to(gpu, [Some(into.dnorm_weight), into.dnorm_bias, into.dbias])?;
    Ok((dx, dresidual))
}

/// The decisions of the forward pass, where there is dropout.
fn kept_by_forward(
    gpu: &Gpu,
    kept: Option<&Tensor>,
    shape: (usize, usize),
    dropout: Option<&Dropout>,
) -> Result<Address> {
    match (dropout, kept) {
        (None, _) => Ok(Address::NULL),
        (Some(_), None) => bail!("residual norm: backward has dropout, and forward had none"),
        (Some(_), Some(kept)) => {
            check_shape("residual norm: kept", kept, &[kept_words(shape.0, shape.1)])?;
            gpu.input(kept, DType::U32)
        }
    }
}

/// The keys where a kernel reads them, and what keeps them alive.
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
