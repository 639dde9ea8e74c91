//! Biased attention on the GPU: attention's launches with kernels of its own, and the sums of their blocks.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use super::InputGradients;
use super::ROWS;
use crate::ops::accumulator::Accumulator;
use crate::ops::attention::Activations;
use crate::ops::attention::Saved;
use crate::ops::attention::Segments;
use crate::ops::attention::Tiles;
use crate::ops::attention::cuda;
use crate::ops::attention::cuda::Form;
use crate::ops::attention::cuda::Kernels;
use crate::ops::attention::cuda::TensorKernels;
use crate::ops::attention::cuda::kernels;
use crate::ops::attention::cuda::tensor_kernels;
use crate::ops::cuda::Address;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::sums::Partials;

const PLAIN: Kernels = kernels!("biased_attention", "");
const TENSOR: [TensorKernels; 2] =
    [tensor_kernels!("biased_attention", 32), tensor_kernels!("biased_attention", 64)];

/// `sizeof(PlainBias)`, and that of four `WarpBias`, in `bias.cuh`.
const SHARED_BYTES: [usize; 2] = [1664, 4864];

/// Sums that a block leaves for each row of the table: one a warp of the kernels on tensor cores, `SUMS` in
/// `bias.cuh`.
const SUMS: usize = 4;

/// Twin of `BiasedArgs` in `bias.cuh`.
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
    let all = |attention| Args { attention, bias, sums: Address::NULL };
    // SAFETY: the bias is `[R, H]`, and forward leaves no sums.
    unsafe { cuda::forward_of(gpu, form(contents[0], segments)?, contents, segments, all) }
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
    let all = |attention| Args { attention, bias, sums };
    let form = form(do_td, segments)?;
    // SAFETY: the bias is `[R, H]`, and there is room for `[4, R, H]` sums of each tile, of which the kernel
    // of the queries writes all.
    let of_contents = unsafe { cuda::backward_of(gpu, form, do_td, activations, saved, segments, all) }?;
    let dbias_rh = gpu.uninitialised((ROWS, segments.heads), DType::F32)?;
    partials.add_to(gpu, [Some(Accumulator { sum: &dbias_rh, begun: false })])?;
    Ok(InputGradients { of_contents, dbias_rh })
}
