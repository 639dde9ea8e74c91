//! Biased attention on the GPU: launched like attention, but with its own kernels, whose blocks leave partial
//! sums for the gradient of the table.

use candle_core::{DType, Result, Tensor};

use super::{InputGradients, ROWS};
use crate::accumulator::Accumulator;
use crate::attention::cuda::{Form, Kernels, TensorKernels, kernels, tensor_kernels};
use crate::attention::{Activations, Saved, Segments, Tiles, cuda};
use crate::cuda::sums::Partials;
use crate::cuda::{Address, Gpu};

const PLAIN: Kernels = kernels!("biased_attention", "");
const TENSOR: [TensorKernels; 2] =
    [tensor_kernels!("biased_attention", 32), tensor_kernels!("biased_attention", 64)];

/// `sizeof(PlainBias)`, and that of four `WarpBias`, in `bias.cuh`.
const SHARED_BYTES: [usize; 2] = [1664, 4864];

/// Number of partial sums that a block leaves for each row of the table, one per warp of the tensor-core
/// kernels. The same as `SUMS` in `bias.cuh`.
const SUMS: usize = 4;

/// Same layout as `BiasedArgs` in `bias.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    attention: cuda::Args,
    bias: Address,
    sums: Address,
}

fn form(q_td: &Tensor, segments: &Segments<'_>) -> Result<Form<'static>> {
    let scale = 1.0 / ((q_td.dim(1)? / segments.heads) as f32).sqrt();
    Ok(Form { plain: PLAIN, tensor: &TENSOR, shared_bytes: SHARED_BYTES, scale })
}

pub(super) fn forward(
    gpu: &Gpu,
    contents: [&Tensor; 3],
    bias_rh: &Tensor,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    let bias = gpu.input(bias_rh, DType::F32)?;
    let form = form(contents[0], segments)?;
    // SAFETY: the bias is `[R, H]`, and forward writes no sums.
    unsafe {
        cuda::forward_of(gpu, form, contents, segments, |attention| Args {
            attention,
            bias,
            sums: Address::NULL,
        })
    }
}

pub(super) fn backward(
    gpu: &Gpu,
    do_td: &Tensor,
    activations: Activations<'_>,
    bias_rh: &Tensor,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<InputGradients> {
    let bias = gpu.input(bias_rh, DType::F32)?;
    let tiles = Tiles::of(gpu, segments.cu_seqlens)?.count;
    let partials = Partials::new(gpu, SUMS * tiles, ROWS * segments.heads)?;
    let sums = partials.address(gpu)?;
    let form = form(do_td, segments)?;
    // SAFETY: the bias is `[R, H]`, and there is room for `[4, R, H]` sums of each tile, all of which the
    // kernel for the queries writes.
    let of_contents = unsafe {
        cuda::backward_of(gpu, form, do_td, activations, saved, segments, |attention| Args {
            attention,
            bias,
            sums,
        })
    }?;
    let dbias_rh = gpu.uninitialised((ROWS, segments.heads), DType::F32)?;
    partials.add_to(gpu, [Some(Accumulator { sum: &dbias_rh, begun: false })])?;
    Ok(InputGradients { of_contents, dbias_rh })
}
