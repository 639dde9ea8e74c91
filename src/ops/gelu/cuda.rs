//! Bias and GELU on the GPU, one pass over the rows each way.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::accumulator::Accumulator;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Kernel;
use crate::ops::cuda::activation;

const FORWARD: Kernel = Kernel { op: "gelu", name: "gelu_forward" };
const BACKWARD: Kernel = Kernel { op: "gelu", name: "gelu_backward" };

pub(super) fn forward(gpu: &Gpu, x_tf: &Tensor, bias_f: Option<&Tensor>) -> Result<Tensor> {
    activation::forward(gpu, FORWARD, x_tf, bias_f)
}

pub(super) fn backward(
    gpu: &Gpu,
    dy_tf: &Tensor,
    x_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    activation::backward(gpu, BACKWARD, dy_tf, x_tf, bias_f, dbias_f)
}
