//! Bias and rectified linear unit on the GPU, one pass over the rows each way.

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::{Gpu, Kernel, activation};

const FORWARD: Kernel = Kernel { op: "relu", name: "relu_forward" };
const BACKWARD: Kernel = Kernel { op: "relu", name: "relu_backward" };

pub(super) fn forward(gpu: &Gpu, x_bd: &Tensor, bias_d: Option<&Tensor>) -> Result<Tensor> {
    activation::forward(gpu, FORWARD, x_bd, bias_d)
}

pub(super) fn backward(
    gpu: &Gpu,
    dy_bd: &Tensor,
    y_bd: &Tensor,
    dbias_d: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    activation::backward(gpu, BACKWARD, dy_bd, y_bd, None, dbias_d)
}
